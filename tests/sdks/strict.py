"""What the vendors refuse in a request: names and ids outside of their alphabets, empty parts,
schemas without a type or with keywords that are not enforced, a choice without tools, nulls, thinking
that the model does not take, and messages out of order. The same rules as in
tests/it/common/upstream/strict."""

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
    ensure(tools or "tools" not in body, "tools is too short")
    ensure(not tools or body.get("reasoning_effort") in (None, "none"), "tools with an effort")
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and "function" in choice:
        called = choice["function"]["name"]
        ensure(called in [tool["name"] for tool in tools], f"{called} not found in tools")
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
        ensure(calls or "tool_calls" not in message, "tool_calls is too short")
        ensure(message["role"] in ("system", "developer", "user", "assistant"), "unknown role")
        ensure(calls or isinstance(content, str) or content, "no content")
        for part in content if isinstance(content, list) else []:
            ensure(part.get("text") != "", "empty text part")
        for call in calls:
            ensure(1 <= len(call["id"]) <= 40, "id is too long")
            name(call["function"]["name"])
            ensure(isinstance(call["function"]["arguments"], str), "no arguments")
            waiting.append(call["id"])


ENFORCED = {"$defs", "$ref", "additionalProperties", "allOf", "anyOf", "const", "default", "definitions",
            "description", "enum", "format", "items", "minItems", "properties", "required", "title", "type"}


def enforced(schema):
    """A schema that Anthropic's answers must follow."""
    unknown = set(schema) - ENFORCED
    ensure(not unknown, f"properties {unknown} are not supported")
    ensure(schema.get("minItems", 0) in (0, 1), "property 'minItems' is not supported")
    closed = schema.get("additionalProperties") is False
    ensure(schema.get("type") != "object" or closed, "additionalProperties must be false")
    for member in ("$defs", "definitions", "properties"):
        for within in schema.get(member, {}).values():
            enforced(within)
    for within in schema.get("allOf", []) + schema.get("anyOf", []):
        enforced(within)
    if "items" in schema:
        enforced(schema["items"])


def thinking(body):
    """Which thinking and effort Anthropic's models take, and what else they refuse with it."""
    model, kind = body["model"], body.get("thinking", {}).get("type")
    effort = body.get("output_config", {}).get("effort")
    ensure(not model.endswith("haiku-4-5") or effort is None, "effort is not supported")
    old = model.endswith(("opus-4-5", "haiku-4-5"))
    ensure(kind != "adaptive" or not old, "adaptive thinking is not supported on this model")
    new = model.endswith(("opus-4-7", "opus-4-8"))
    ensure(kind != "enabled" or not new, "thinking.type.enabled is not supported for this model")
    if kind not in ("adaptive", "enabled"):
        return
    ensure(body.get("temperature", 1) == 1, "temperature may only be 1 when thinking is enabled")
    ensure(body.get("top_p", 1) >= 0.95, "top_p must be at least 0.95 when thinking is enabled")
    forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
    ensure(not forced, "Thinking may not be enabled when tool_choice forces tool use.")
    if kind == "enabled":
        budget = body["thinking"]["budget_tokens"]
        ensure(1024 <= budget < body["max_tokens"], "max_tokens must be greater than budget_tokens")


def knows_system_role(model):
    """Models of Anthropic after 4.7."""
    return [int(word) for word in model.split("-") if word.isdigit()][:2] > [4, 7]


def anthropic(body):
    tools = [tool for tool in body.get("tools", []) if "input_schema" in tool]
    for tool in tools:
        name(tool["name"], r"[a-zA-Z0-9_-]{1,128}")
        ensure(tool["input_schema"].get("type") == "object", "input_schema.type: Field required")
        if tool.get("strict"):
            enforced(tool["input_schema"])
    ensure(None not in body.values(), "Input should not be null")
    form = body.get("output_config", {}).get("format")
    if form:
        enforced(form["schema"])
    thinking(body)
    choice = body.get("tool_choice", {})
    ensure(body.get("tools") or not choice, "tool_choice without tools")
    names = [tool["name"] for tool in body.get("tools", [])]
    ensure(choice.get("name", names and names[0]) in names or not choice, "tool_choice not in tools")
    ensure("temperature" not in body or "top_p" not in body, "temperature and top_p: use only one")
    ensure(all(stop.strip() for stop in body.get("stop_sequences", [])), "blank stop sequence")
    system = body.get("system", "x")
    said = [system] if isinstance(system, str) else [block["text"] for block in system]
    ensure(all(text.strip() for text in said), "system: text content blocks must be non-empty")
    ensure(body["messages"], "at least one message is required")
    ensure(body["messages"][0]["role"] == "user", "first message must use the user role")
    before, ids, waiting = "assistant", set(), []
    for at, message in enumerate(body["messages"]):
        ensure(message["role"] != before, f"roles must alternate: {before} again")
        if message["role"] == "system":
            ensure(knows_system_role(body["model"]), 'Unexpected role "system"')
            last = at + 1 == len(body["messages"])
            placed = before == "user" and (last or body["messages"][at + 1]["role"] == "assistant")
            ensure(placed, "a system message must follow a user turn, and an assistant turn it")
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


GENERATION_CONFIG = {"candidateCount", "maxOutputTokens", "responseJsonSchema", "responseMimeType", "seed",
                     "stopSequences", "temperature", "thinkingConfig", "topK", "topP"}


def gemini(body):
    pattern = r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"
    declared = [d for tool in body.get("tools", []) for d in tool["functionDeclarations"]]
    for one in declared:
        name(one["name"], pattern)
        if "parametersJsonSchema" in one:
            of_arguments(one["parametersJsonSchema"])
    names = [one["name"] for one in declared]
    ensure(len(set(names)) == len(names), "Duplicate function")
    ensure(declared or "toolConfig" not in body, "function calling config without functions")
    calling = body.get("toolConfig", {}).get("functionCallingConfig", {})
    ensure(set(calling.get("allowedFunctionNames", [])) <= set(names), "unknown function")
    unknown = set(body["generationConfig"]) - GENERATION_CONFIG
    ensure(not unknown, f"Unknown names {unknown} at 'generation_config'")
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
