"""Dialogues of texts by the unchanged packages of OpenAI and Anthropic."""

import asyncio
import base64
import json
import os
import time
import urllib.error
import urllib.request

import anthropic
import openai
import pydantic

URL = os.environ["SDKS_URL"]
KEY = os.environ["SDKS_KEY"]
POOR = os.environ["SDKS_POOR_KEY"]
MODEL = "sandbox/sandbox-text-1"


def ready():
    for _ in range(600):
        try:
            return urllib.request.urlopen(URL + "/health")
        except urllib.error.URLError:
            time.sleep(0.1)
    raise SystemExit("the server does not start")


def say(text):
    return [{"role": "user", "content": text}]


def expect(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def counted(client):
    """How often its next calls are sent."""
    sent = []
    send = client._client.send
    client._client.send = lambda *a, **k: sent.append(1) or send(*a, **k)
    return sent


def with_openai():
    url = URL + "/openai/v1"
    client = openai.OpenAI(base_url=url, api_key=KEY)
    first = client.chat.completions.create(model=MODEL, messages=say("Name three rivers"))
    answer = first.choices[0].message
    assert answer.content and first.choices[0].finish_reason == "stop", first
    assert first.usage.total_tokens == first.usage.prompt_tokens + first.usage.completion_tokens
    # The next turn, with the answer as the package has it.
    turns = [{"role": "developer", "content": "Be brief."}, *say("Name three rivers"), answer]
    turns += say("And three lakes")
    short = client.chat.completions.create(model=MODEL, messages=turns, max_completion_tokens=3)
    assert short.choices[0].finish_reason == "length", short
    assert short.usage.completion_tokens == 3, short

    options = {"include_usage": True}
    stream = client.chat.completions.create(
        model=MODEL, messages=turns, stream=True, stream_options=options
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text and chunks[-1].usage.completion_tokens > 3, chunks[-1]
    with client.chat.completions.stream(model=MODEL, messages=turns) as stream:
        stream.until_done()
        assert stream.get_final_completion().choices[0].message.content == text

    async def streamed():
        other = openai.AsyncOpenAI(base_url=url, api_key=KEY)
        stream = await other.chat.completions.create(model=MODEL, messages=turns, stream=True)
        return "".join([c.choices[0].delta.content or "" async for c in stream])

    assert asyncio.run(streamed()) == text

    models = [model.id for model in client.models.list()]
    assert MODEL in models, models
    assert client.models.retrieve(MODEL).id == MODEL

    ask = client.chat.completions.create
    refused = expect(openai.BadRequestError, lambda: ask(model=MODEL, messages=turns, seed=1))
    assert (refused.code, refused.param) == ("unsupported_parameter", "seed"), refused
    expect(openai.NotFoundError, lambda: ask(model="nope", messages=turns))
    wrong = openai.OpenAI(base_url=url, api_key="svc_wrong")
    expect(openai.AuthenticationError, lambda: wrong.models.list())
    poor = openai.OpenAI(base_url=url, api_key=POOR)
    sent = counted(poor)
    short = expect(
        openai.APIStatusError,
        lambda: poor.chat.completions.create(model=MODEL, messages=turns),
    )
    assert (short.status_code, short.code, len(sent)) == (402, "insufficient_credits", 1), short
    sent = counted(client)
    fault = expect(openai.InternalServerError, lambda: ask(model=MODEL, messages=say("[[rate_limit]]")))
    assert (fault.status_code, len(sent)) == (503, 3), (fault, sent)
    # Five words, then a failure: an error, and no short success.
    stream = ask(model=MODEL, messages=say("[[fail]]"), stream=True)
    expect(openai.APIError, lambda: list(stream))


def with_anthropic():
    url = URL + "/anthropic"
    client = anthropic.Anthropic(base_url=url, api_key=KEY)
    ask = client.messages.create
    first = ask(model=MODEL, max_tokens=200, messages=say("Name three rivers"))
    assert first.content[0].text and first.stop_reason == "end_turn", first
    assert first.usage.input_tokens > 0 and first.usage.output_tokens > 0, first
    turns = say("Name three rivers") + [{"role": "assistant", "content": first.content[0].text}]
    turns += say("And three lakes")
    short = ask(model=MODEL, max_tokens=3, messages=turns, system="Be brief.")
    assert (short.stop_reason, short.usage.output_tokens) == ("max_tokens", 3), short
    stopped = ask(model=MODEL, max_tokens=200, messages=turns, stop_sequences=["."])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "."), stopped

    with client.messages.stream(model=MODEL, max_tokens=200, messages=turns) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text and final.content[0].text == text, final
    assert final.stop_reason == "end_turn" and final.usage.input_tokens > 0, final

    async def streamed():
        other = anthropic.AsyncAnthropic(base_url=url, api_key=KEY)
        async with other.messages.stream(model=MODEL, max_tokens=200, messages=turns) as stream:
            return "".join([piece async for piece in stream.text_stream])

    assert asyncio.run(streamed()) == text
    beta = client.beta.messages.create(model=MODEL, max_tokens=200, messages=turns)
    assert beta.content[0].text == text, beta

    counted_tokens = client.messages.count_tokens(model=MODEL, messages=turns)
    assert counted_tokens.input_tokens >= final.usage.input_tokens, counted_tokens
    models = [model.id for model in client.models.list(limit=1)]
    assert MODEL in models, models
    assert client.models.retrieve(MODEL).lifecycle == "active"

    refused = expect(
        anthropic.BadRequestError,
        lambda: ask(model=MODEL, max_tokens=9, messages=turns, extra_body={"container": "x"}),
    )
    assert refused.body["error"]["details"]["unsupported"] == ["container"], refused
    expect(anthropic.NotFoundError, lambda: ask(model="nope", max_tokens=9, messages=turns))
    wrong = anthropic.Anthropic(base_url=url, api_key="svc_wrong")
    expect(anthropic.AuthenticationError, lambda: wrong.models.list())
    poor = anthropic.Anthropic(base_url=url, api_key=POOR)
    sent = counted(poor)
    short = expect(
        anthropic.APIStatusError,
        lambda: poor.messages.create(model=MODEL, max_tokens=9, messages=turns),
    )
    assert (short.status_code, len(sent)) == (402, 1), short
    assert short.body["error"]["type"] == "billing_error", short.body
    sent = counted(client)
    fault = expect(
        anthropic.APIStatusError,
        lambda: ask(model=MODEL, max_tokens=9, messages=say("[[rate_limit]]")),
    )
    assert (fault.status_code, len(sent)) == (503, 3), (fault, sent)
    stream = ask(model=MODEL, max_tokens=200, messages=say("[[fail]]"), stream=True)
    expect(anthropic.APIError, lambda: list(stream))


def with_media():
    client = openai.OpenAI(base_url=URL + "/openai/v1", api_key=KEY)
    ask = {"model": "sandbox/sandbox-image-1", "prompt": "A lighthouse", "size": "256x256"}
    images = client.images.generate(**ask, n=2, response_format="b64_json")
    assert [base64.b64decode(one.b64_json)[:4] for one in images.data] == [b"\x89PNG"] * 2
    link = client.images.generate(**ask, quality="high").data[0].url
    assert urllib.request.urlopen(link).read(4) == b"\x89PNG"
    refused = expect(
        openai.BadRequestError, lambda: client.images.generate(**ask, background="transparent")
    )
    assert (refused.code, refused.param) == ("unsupported_parameter", "background"), refused

    spoken = {"model": "sandbox/sandbox-speech-1", "voice": "aria", "input": "Good morning."}
    assert len(client.audio.speech.create(**spoken).content) > 1000
    with client.audio.speech.with_streaming_response.create(
        **spoken, response_format="wav", speed=2
    ) as response:
        assert next(response.iter_bytes(4)) == b"RIFF"
    refused = expect(
        openai.BadRequestError,
        lambda: client.audio.speech.create(**{**spoken, "voice": "nobody"}),
    )
    assert refused.param == "voice", refused


def with_responses():
    client = openai.OpenAI(base_url=URL + "/openai/v1", api_key=KEY)
    ask = client.responses.create
    whole = ask(model=MODEL, input="Name three rivers")
    assert whole.output_text and whole.status == "completed", whole
    assert whole.usage.output_tokens_details.reasoning_tokens == 0, whole.usage
    with client.responses.stream(model=MODEL, input="Name three rivers") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    assert final.output_text == whole.output_text, final

    class River(pydantic.BaseModel):
        name: str
        kilometres: int

    parsed = client.responses.parse(model=MODEL, input="A river", text_format=River)
    assert parsed.output_parsed.kilometres is not None, parsed

    tool = openai.pydantic_function_tool(River, name="river")["function"]
    tools = [{"type": "function", "name": "river", "parameters": tool["parameters"], "strict": True}]
    turns = [{"role": "user", "content": "[[tool]] A river"}]
    called = ask(model=MODEL, input=turns, tools=tools)
    call = next(item for item in called.output if item.type == "function_call")
    assert "kilometres" in json.loads(call.arguments), call
    turns += called.output
    turns.append({"type": "function_call_output", "call_id": call.call_id, "output": "long"})
    assert ask(model=MODEL, input=turns, tools=tools).output_text
    counted_tokens = client.responses.input_tokens.count(model=MODEL, input="Name three rivers")
    assert counted_tokens.input_tokens >= whole.usage.input_tokens, counted_tokens
    refused = expect(
        openai.BadRequestError,
        lambda: ask(model=MODEL, input="x", previous_response_id=whole.id),
    )
    assert (refused.code, refused.param) == ("unsupported_parameter", "previous_response_id")
    for event in ask(model=MODEL, input="[[fail]]", stream=True):
        last = event
    assert last.type == "response.failed" and last.response.error.code == "provider_error", last


ready()
with_openai()
with_anthropic()
with_responses()
with_media()
print("The packages of OpenAI and Anthropic work.")
