"""What the vendors refuse in a request: names and ids outside of their alphabets, empty parts,
schemas without a type, a choice without tools, nulls, and messages out of order."""

import re


class Refused(Exception):
    pass


def ensure(holds, message):
    if not holds:
        raise Refused(message)


def arrays(schema):
    if isinstance(schema, list):
        for item in schema:
            arrays(item)
    if isinstance(schema, dict):
        ensure(schema.get("type") != "array" or "items" in schema, "array schema missing items")
        for value in schema.values():
            arrays(value)


def of_arguments(schema):
    ensure(schema.get("type") == "object", f"schema must be of type object: {schema}")
    ensure(isinstance(schema.get("properties"), dict), "object schema missing properties")
    arrays(schema)


def name(text, pattern=r"[a-zA-Z0-9_-]{1,64}"):
    ensure(re.fullmatch(pattern, text), f"{text} does not match {pattern}")


def openai(body):
    tools = [tool["function"] for tool in body.get("tools", [])]
    for tool in tools:
        name(tool["name"])
        if "parameters" in tool:
            of_arguments(tool["parameters"])
    for member in ("tool_choice", "parallel_tool_calls"):
        ensure(tools or body.get(member) is None, f"{member} is only allowed with tools")
    ensure(len(body.get("stop") or []) <= 4 or isinstance(body["stop"], str), "stop has 4 at most")
    ensure(body["messages"], "messages is too short")
    waiting = []
    for message in body["messages"]:
        content = message.get("content")
        if message["role"] == "tool":
            ensure(message["tool_call_id"] in waiting, "tool message without its call")
            waiting.remove(message["tool_call_id"])
            continue
        ensure(not waiting, "tool_calls must be followed by tool messages")
        calls = message.get("tool_calls") or []
        ensure(calls or isinstance(content, str) or content, "no content")
        for part in content if isinstance(content, list) else []:
            ensure(part.get("text") != "", "empty text part")
        for call in calls:
            ensure(1 <= len(call["id"]) <= 40, "id is too long")
            name(call["function"]["name"])
            ensure(isinstance(call["function"]["arguments"], str), "no arguments")
            waiting.append(call["id"])


def anthropic(body):
    tools = [tool for tool in body.get("tools", []) if "input_schema" in tool]
    for tool in tools:
        name(tool["name"], r"[a-zA-Z0-9_-]{1,128}")
        ensure(tool["input_schema"].get("type") == "object", "input_schema.type: Field required")
    ensure(body.get("tools") or not body.get("tool_choice"), "tool_choice without tools")
    ensure(None not in body.values(), "Input should not be null")
    ensure(body["messages"], "at least one message is required")
    before, ids, waiting = "assistant", set(), []
    for message in body["messages"]:
        ensure(message["role"] != before, f"roles must alternate: {before} again")
        before = message["role"]
        content, first = message["content"], True
        ensure(content.strip() if isinstance(content, str) else content, "empty content")
        for block in content if isinstance(content, list) else []:
            if block["type"] == "text":
                ensure(block["text"].strip(), "text must contain non-whitespace text")
            if block["type"] == "thinking":
                ensure(block["signature"], "Invalid signature in thinking block")
            if block["type"] == "tool_use":
                name(block["id"], r"[a-zA-Z0-9_-]+")
                name(block["name"], r"[a-zA-Z0-9_-]{1,128}")
                ensure(isinstance(block["input"], dict), "input is no object")
                ensure(block["id"] not in ids, "tool_use ids must be unique")
                ids.add(block["id"])
                waiting.append(block["id"])
            if block["type"] == "tool_result":
                ensure(first, "tool_result blocks must come first")
                ensure(block["tool_use_id"] in waiting, "tool_result without its tool_use")
                waiting.remove(block["tool_use_id"])
            else:
                first = False
        ensure(before == "assistant" or not waiting, "tool_use without its tool_result")


def gemini(body):
    pattern = r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"
    declared = [d for tool in body.get("tools", []) for d in tool["functionDeclarations"]]
    for one in declared:
        name(one["name"], pattern)
        if "parametersJsonSchema" in one:
            of_arguments(one["parametersJsonSchema"])
    ensure(declared or "toolConfig" not in body, "function calling config without functions")
    ensure(len(body["generationConfig"].get("stopSequences", [])) <= 5, "5 stop sequences at most")
    ensure(body["contents"], "contents is not specified")
    before, waiting = "model", 0
    for content in body["contents"]:
        ensure(content["role"] != before, "turns must alternate between user and model")
        before = content["role"]
        parts = content["parts"]
        ensure(parts, "parts must not be empty")
        results = [part for part in parts if "functionResponse" in part]
        ensure(len(results) == waiting, "as many function responses as calls")
        waiting = 0
        for part in parts:
            data = {"text", "inlineData", "functionCall", "functionResponse"} & set(part)
            ensure(len(data) == 1 and part.get("text") != "", "a part must have one field of data")
            if "functionCall" in part:
                name(part["functionCall"]["name"], pattern)
                ensure(isinstance(part["functionCall"]["args"], dict), "args is no object")
                waiting += 1
            if "functionResponse" in part:
                name(part["functionResponse"]["name"], pattern)


VENDORS = {"openai": openai, "anthropic": anthropic, "gemini": gemini}
