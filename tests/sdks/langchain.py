"""LangChain's package for OpenAI, to every provider."""

import os

import pydantic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI


class Weather(pydantic.BaseModel):
    """The weather of a city."""

    city: str
    days: int


for model in os.environ["SDKS_MODELS"].split():
    base_url = os.environ["SDKS_URL"] + "/openai/v1"
    chat = ChatOpenAI(model=model, base_url=base_url, api_key=os.environ["SDKS_KEY"])
    whole = chat.invoke("Name three rivers")
    assert whole.content and whole.usage_metadata["output_tokens"] > 0, whole
    text = "".join(chunk.content for chunk in chat.stream("Name three rivers"))
    assert text == whole.content, text
    turns = [HumanMessage("[[tool:Weather]] How is it?")]
    turns.append(chat.bind_tools([Weather]).invoke(turns))
    calls = turns[-1].tool_calls
    assert [call["name"] for call in calls] == ["Weather"], turns
    turns += [ToolMessage("fine", tool_call_id=call["id"]) for call in calls]
    assert "fine" in chat.bind_tools([Weather]).invoke(turns).content, turns
    found = chat.with_structured_output(Weather).invoke("Bonn")
    assert isinstance(found, Weather), found
print("LangChain reaches each provider.")
