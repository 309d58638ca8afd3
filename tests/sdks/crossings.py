"""Every dialect of the unchanged Python packages to every provider: the sandbox, and a stand-in for
the vendors (upstream.py)."""

import asyncio
import json
import os
import urllib.parse
import urllib.request

import anthropic
import openai
import pydantic

URL = os.environ["SDKS_URL"]
UPSTREAM = os.environ["SDKS_UPSTREAM"]
KEY = os.environ["SDKS_KEY"]
POOR = os.environ["SDKS_POOR_KEY"]
OPENAI = {"base_url": URL + "/openai/v1", "api_key": KEY}
ANTHROPIC = {"base_url": URL + "/anthropic", "api_key": KEY}
SANDBOX = "sandbox/sandbox-text-1"
MODELS = [
    SANDBOX,
    "openai/gpt-6-luna",
    "anthropic/claude-haiku-5-5",
    "gemini/gemini-3.5-flash-lite",
]


class Weather(pydantic.BaseModel):
    """The weather of a city."""

    model_config = pydantic.ConfigDict(extra="forbid")
    city: str
    days: int


def get(path):
    headers = {"Authorization": "Bearer " + KEY}
    return json.load(urllib.request.urlopen(urllib.request.Request(URL + path, headers=headers)))


def newest():
    """The uuids of the last generations."""
    return [one["uuid"] for one in get("/v1/generate/history?per_page=9")["data"]]


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


class Chat:
    """Chat Completions."""

    tools = [openai.pydantic_function_tool(Weather)]
    tools += [{"type": "function", "function": {"name": "now"}}]

    def client(self, **options):
        return openai.OpenAI(**{**OPENAI, **options})

    def ask(self, client, model, text, **more):
        turns = [{"role": "user", "content": text}]
        return client.chat.completions.create(model=model, messages=turns, **more)

    def text(self, answer):
        assert answer.choices[0].finish_reason == "stop", answer
        assert answer.usage.prompt_tokens > 0 and answer.usage.completion_tokens > 0, answer
        return answer.choices[0].message.content

    def streamed(self, client, model, text):
        turns = [{"role": "user", "content": text}]
        options = {"include_usage": True}
        asked = {"model": model, "messages": turns, "stream_options": options}
        with client.chat.completions.stream(**asked) as stream:
            stream.until_done()
            return stream.get_final_completion()

    async def later(self, model, text):
        turns = [{"role": "user", "content": text}]
        async with openai.AsyncOpenAI(**OPENAI) as client:
            stream = await client.chat.completions.create(model=model, messages=turns, stream=True)
            return "".join([c.choices[0].delta.content or "" async for c in stream])

    def calls(self, client, model, text, stream):
        turns = [{"role": "user", "content": text}]
        asked = {"model": model, "messages": turns, "tools": self.tools}
        if stream:
            with client.chat.completions.stream(**asked) as events:
                events.until_done()
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**asked).choices[0].message
        calls = message.tool_calls
        found = [(call.function.name, json.loads(call.function.arguments)) for call in calls]
        turns += [message]
        turns += [{"role": "tool", "tool_call_id": call.id, "content": "fine"} for call in calls]
        last = client.chat.completions.create(**asked)
        return found, last.choices[0].message.content

    def parsed(self, client, model):
        turns = [{"role": "user", "content": "Bonn"}]
        parse = client.chat.completions.parse
        return parse(model=model, messages=turns, response_format=Weather).choices[0].message.parsed


class Responses:
    """Responses."""

    tools = [
        {"type": "function", "name": "Weather", "strict": True,
         "parameters": openai.pydantic_function_tool(Weather)["function"]["parameters"]},
        {"type": "function", "name": "now", "strict": False, "parameters": {"type": "object"}},
    ]

    def client(self, **options):
        return openai.OpenAI(**{**OPENAI, **options})

    def ask(self, client, model, text, **more):
        return client.responses.create(model=model, input=text, **more)

    def text(self, answer):
        assert answer.status == "completed", answer
        assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0, answer
        return answer.output_text

    def streamed(self, client, model, text):
        with client.responses.stream(model=model, input=text) as stream:
            kinds = [event.type for event in stream]
            assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
            return stream.get_final_response()

    async def later(self, model, text):
        kind = "response.output_text.delta"
        async with openai.AsyncOpenAI(**OPENAI) as client:
            stream = await client.responses.create(model=model, input=text, stream=True)
            return "".join([event.delta async for event in stream if event.type == kind])

    def calls(self, client, model, text, stream):
        turns = [{"role": "user", "content": text}]
        include = ["reasoning.encrypted_content"]
        asked = {"model": model, "input": turns, "tools": self.tools, "include": include}
        if stream:
            with client.responses.stream(**asked) as events:
                answer = events.get_final_response()
        else:
            answer = client.responses.create(**asked)
        calls = [item for item in answer.output if item.type == "function_call"]
        found = [(call.name, json.loads(call.arguments)) for call in calls]
        turns += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output]
        for call in calls:
            result = {"type": "function_call_output", "call_id": call.call_id, "output": "fine"}
            turns.append(result)
        return found, client.responses.create(**asked).output_text

    def parsed(self, client, model):
        parse = client.responses.parse
        return parse(model=model, input="Bonn", text_format=Weather).output_parsed


class Messages:
    """Messages."""

    tools = [
        {"name": "Weather", "input_schema": Weather.model_json_schema()},
        {"name": "now", "input_schema": {"type": "object"}},
    ]

    def client(self, **options):
        return anthropic.Anthropic(**{**ANTHROPIC, **options})

    def ask(self, client, model, text, **more):
        turns = [{"role": "user", "content": text}]
        return client.messages.create(model=model, max_tokens=500, messages=turns, **more)

    def text(self, answer):
        assert answer.stop_reason == "end_turn", answer
        assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0, answer
        return answer.content[0].text

    def streamed(self, client, model, text):
        turns = [{"role": "user", "content": text}]
        with client.messages.stream(model=model, max_tokens=500, messages=turns) as stream:
            return stream.get_final_message()

    async def later(self, model, text):
        turns = [{"role": "user", "content": text}]
        asked = {"model": model, "max_tokens": 500, "messages": turns}
        async with anthropic.AsyncAnthropic(**ANTHROPIC) as client:
            async with client.messages.stream(**asked) as stream:
                return "".join([piece async for piece in stream.text_stream])

    def calls(self, client, model, text, stream):
        turns = [{"role": "user", "content": text}]
        asked = {"model": model, "max_tokens": 500, "messages": turns, "tools": self.tools}
        if stream:
            with client.messages.stream(**asked) as events:
                content = events.get_final_message().content
        else:
            content = client.messages.create(**asked).content
        uses = [block for block in content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": "fine"} for use in uses]
        turns += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
        last = client.messages.create(**asked)
        return [(use.name, use.input) for use in uses], last.content[0].text

    def parsed(self, client, model):
        turns = [{"role": "user", "content": "Bonn"}]
        parse = client.messages.parse
        return parse(model=model, max_tokens=500, messages=turns, output_format=Weather).parsed_output


def texts(dialect, model):
    client = dialect.client()
    text = dialect.text(dialect.ask(client, model, "Name three rivers"))
    assert text and len(text.split()) > 5, text
    assert dialect.text(dialect.streamed(client, model, "Name three rivers")) == text
    assert asyncio.run(dialect.later(model, "Name three rivers")) == text
    assert model in [one.id for one in client.models.list()]
    assert client.models.retrieve(model).id == model


def tools(dialect, model):
    client = dialect.client()
    for stream in (False, True):
        ask = "[[tool:Weather]] [[tool:now]] How is it?"
        calls, text = dialect.calls(client, model, ask, stream)
        assert [name for name, _ in calls] == ["Weather", "now"], calls
        Weather.model_validate(calls[0][1])
        assert calls[1][1] == {} and "fine" in text, (calls, text)
    assert isinstance(dialect.parsed(client, model), Weather)


def errors(dialect, model):
    package = anthropic if isinstance(dialect, Messages) else openai
    client = dialect.client()
    sent = counted(client)
    expect(package.BadRequestError, lambda: dialect.ask(client, model, "[[reject]]"))
    assert len(sent) == 1, sent
    sent.clear()
    busy = expect(package.APIStatusError, lambda: dialect.ask(client, model, "[[rate_limit]]"))
    assert (busy.status_code, len(sent)) == (503, 3), (busy, sent)
    # Some words, then a cut.
    if isinstance(dialect, Responses):
        *_, last = dialect.ask(client, model, "[[fail]]", stream=True)
        assert last.type == "response.failed", last
    else:
        stream = dialect.ask(client, model, "[[fail]]", stream=True)
        expect(package.APIError, lambda: list(stream))
    poor = dialect.client(api_key=POOR)
    sent = counted(poor)
    short = expect(package.APIStatusError, lambda: dialect.ask(poor, model, "x"))
    assert (short.status_code, len(sent)) == (402, 1), (short, sent)
    wrong = dialect.client(api_key="svc_wrong")
    expect(package.AuthenticationError, lambda: dialect.ask(wrong, model, "x"))


def retries(dialect, model):
    """A client's patience of 1 s ends twice before the answer: one call upstream, one charge."""
    text = f"{type(dialect).__name__} of {model} [[slow:3]]"
    client = dialect.client(timeout=1.0, max_retries=2)
    before, sent = newest(), counted(client)
    assert dialect.text(dialect.ask(client, model, text))
    assert len(sent) == 3, sent
    made = newest()
    assert made[1] == before[0], made
    record = get("/v1/generate/" + made[0])
    assert record["metadata"]["attempts"] == 1 and record["metadata"]["joined"] in (1, 2), record
    if model != SANDBOX:
        query = urllib.parse.urlencode({"text": text})
        assert json.load(urllib.request.urlopen(f"{UPSTREAM}/calls?{query}")) == 1
    entries = get("/v1/credits/ledger?generation=" + made[0])["data"]
    assert [entry["kind"] for entry in entries] == ["charge", "hold"], entries


for dialect in (Chat(), Responses(), Messages()):
    for model in MODELS:
        for crossing in (texts, tools, errors, retries):
            try:
                crossing(dialect, model)
            except BaseException:
                print(f"{crossing.__name__}: {type(dialect).__name__} to {model}")
                raise
print("Each dialect reaches each provider: Python.")
