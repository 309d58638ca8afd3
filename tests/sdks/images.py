"""Images as input, by the unchanged packages of OpenAI and Anthropic."""

import base64
import os
import struct
import zlib

import anthropic
import openai

URL = os.environ["SDKS_URL"]
KEY = os.environ["SDKS_KEY"]
MODEL = "sandbox/sandbox-text-1"
SEEN = "I was shown 2 images: image/png of 64x48 pixels, one by its URL."
ELSEWHERE = "https://example.com/a.png"


def png(width, height):
    def chunk(name, data):
        checksum = zlib.crc32(name + data)
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress((b"\0" * (width + 1)) * height)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


DATA = base64.b64encode(png(64, 48)).decode()
DATA_URL = "data:image/png;base64," + DATA


def with_openai():
    client = openai.OpenAI(base_url=URL + "/openai/v1", api_key=KEY)
    parts = [{"type": "text", "text": "What is it?"}]
    parts += [
        {"type": "image_url", "image_url": {"url": url, "detail": "high"}}
        for url in (DATA_URL, ELSEWHERE)
    ]
    turns = [{"role": "user", "content": parts}]
    whole = client.chat.completions.create(model=MODEL, messages=turns)
    assert whole.choices[0].message.content.startswith(SEEN), whole
    assert whole.usage.prompt_tokens > 1568, whole.usage
    with client.chat.completions.stream(model=MODEL, messages=turns) as stream:
        stream.until_done()
        text = stream.get_final_completion().choices[0].message.content
    assert text == whole.choices[0].message.content, text
    broken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    try:
        client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": [broken]}]
        )
    except openai.BadRequestError as error:
        assert error.param == "messages[0].content[0].image_url.url", error
    else:
        raise AssertionError("a broken image is taken")

    shown = [{"type": "input_image", "image_url": url} for url in (DATA_URL, ELSEWHERE)]
    asked = [{"role": "user", "content": [{"type": "input_text", "text": "x"}, *shown]}]
    answer = client.responses.create(model=MODEL, input=asked)
    assert answer.output_text.startswith(SEEN), answer
    counted = client.responses.input_tokens.count(model=MODEL, input=asked)
    assert counted.input_tokens > 0, counted
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": shown}
    answer = client.responses.create(
        model=MODEL, input=[{"role": "user", "content": "x"}, call, result]
    )
    assert answer.output_text.startswith(SEEN), answer


def with_anthropic():
    client = anthropic.Anthropic(base_url=URL + "/anthropic", api_key=KEY)
    sources = [
        {"type": "base64", "media_type": "image/png", "data": DATA},
        {"type": "url", "url": ELSEWHERE},
    ]
    shown = [{"type": "image", "source": source} for source in sources]
    asked = [{"role": "user", "content": [{"type": "text", "text": "x"}, *shown]}]
    whole = client.messages.create(model=MODEL, max_tokens=200, messages=asked)
    assert whole.content[0].text.startswith(SEEN), whole
    with client.messages.stream(model=MODEL, max_tokens=200, messages=asked) as stream:
        final = stream.get_final_message()
    assert final.content[0].text == whole.content[0].text, final
    counted = client.messages.count_tokens(model=MODEL, messages=asked)
    assert counted.input_tokens > 0 and whole.usage.input_tokens > 1568, counted
    use = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": shown}
    turns = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    answer = client.messages.create(model=MODEL, max_tokens=200, messages=turns)
    assert answer.content[0].text.startswith(SEEN), answer


with_openai()
with_anthropic()
print("The packages of OpenAI and Anthropic show images.")
