"""Dialogues by the unchanged package langchain-openai."""

import os

from langchain_openai import ChatOpenAI

URL = os.environ["SDKS_URL"] + "/openai/v1"
KEY = os.environ["SDKS_KEY"]
MODEL = "sandbox/sandbox-text-1"

chat = ChatOpenAI(model=MODEL, base_url=URL, api_key=KEY)
whole = chat.invoke("Name three rivers")
assert whole.content and whole.usage_metadata["output_tokens"] > 3, whole
pieces = list(chat.stream("Name three rivers"))
assert "".join(piece.content for piece in pieces) == whole.content, pieces
batch = chat.batch(["a", "b", "c"])
assert len({one.id for one in batch}) == 3 and all(one.content for one in batch), batch
print("langchain-openai works.")
