"""Tools, structured output and thoughts by the unchanged packages of OpenAI and Anthropic."""

import json
import os

import anthropic
import openai
import pydantic

URL = os.environ["SDKS_URL"]
KEY = os.environ["SDKS_KEY"]
MODEL = "sandbox/sandbox-text-1"


class Weather(pydantic.BaseModel):
    """The weather of a city."""

    city: str
    days: int


def say(text):
    return [{"role": "user", "content": text}]


def with_openai():
    client = openai.OpenAI(base_url=URL + "/openai/v1", api_key=KEY)
    ask = client.chat.completions.create
    tools = [openai.pydantic_function_tool(Weather)]
    other = {"name": "time", "parameters": {"type": "object", "properties": {}}}
    tools.append({"type": "function", "function": other})
    turns = say("[[tool:Weather]] [[tool:time]] How is it?")
    first = ask(model=MODEL, messages=turns, tools=tools)
    assert first.choices[0].finish_reason == "tool_calls", first
    calls = first.choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["Weather", "time"], calls
    Weather.model_validate_json(calls[0].function.arguments)
    assert json.loads(calls[1].function.arguments) == {}, calls

    with client.chat.completions.stream(model=MODEL, messages=turns, tools=tools) as stream:
        stream.until_done()
        streamed = stream.get_final_completion().choices[0].message.tool_calls
    assert [call.id for call in streamed] == [call.id for call in calls], streamed
    assert streamed[0].function.arguments == calls[0].function.arguments, streamed

    turns += [first.choices[0].message]
    turns += [{"role": "tool", "tool_call_id": call.id, "content": "fine"} for call in calls]
    last = ask(model=MODEL, messages=turns, tools=tools).choices[0]
    assert last.finish_reason == "stop" and "fine" in last.message.content, last

    one = ask(model=MODEL, messages=say("[[tool]] [[tool]]"), tools=tools, parallel_tool_calls=False)
    assert len(one.choices[0].message.tool_calls) == 1, one
    parsed = client.chat.completions.parse(model=MODEL, messages=say("x"), response_format=Weather)
    assert isinstance(parsed.choices[0].message.parsed, Weather), parsed
    parsed = client.chat.completions.parse(model=MODEL, messages=say("[[tool]]"), tools=tools[:1])
    arguments = parsed.choices[0].message.tool_calls[0].function.parsed_arguments
    assert isinstance(arguments, Weather), parsed


def with_anthropic():
    client = anthropic.Anthropic(base_url=URL + "/anthropic", api_key=KEY)
    tools = [
        {"name": "Weather", "input_schema": Weather.model_json_schema()},
        {"name": "time", "input_schema": {"type": "object", "properties": {}}},
    ]
    turns = say("[[tool:Weather]] [[tool:time]] How is it?")
    asked = {"model": MODEL, "max_tokens": 500, "tools": tools}
    first = client.messages.create(messages=turns, **asked)
    assert first.stop_reason == "tool_use", first
    uses = [block for block in first.content if block.type == "tool_use"]
    assert [use.name for use in uses] == ["Weather", "time"], uses
    Weather.model_validate(uses[0].input)

    with client.messages.stream(messages=turns, **asked) as stream:
        streamed = stream.get_final_message()
    assert streamed.content == first.content, streamed

    results = [{"type": "tool_result", "tool_use_id": use.id, "content": "fine"} for use in uses]
    turns += [{"role": "assistant", "content": first.content}]
    turns += [{"role": "user", "content": results}]
    last = client.messages.create(messages=turns, **asked)
    assert last.stop_reason == "end_turn" and "fine" in last.content[0].text, last

    choice = {"type": "tool", "name": "time", "disable_parallel_tool_use": True}
    one = client.messages.create(messages=say("x"), tool_choice=choice, **asked)
    assert [block.name for block in one.content] == ["time"], one
    parsed = client.messages.parse(
        model=MODEL, max_tokens=500, messages=say("x"), output_format=Weather
    )
    assert isinstance(parsed.parsed_output, Weather), parsed
    thinking = {"type": "enabled", "budget_tokens": 1024}
    thought = client.messages.create(
        model=MODEL, max_tokens=2000, messages=say("x"), thinking=thinking
    )
    assert thought.stop_reason == "end_turn", thought


with_openai()
with_anthropic()
print("The packages of OpenAI and Anthropic call tools.")
