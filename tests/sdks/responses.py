"""OpenAI's Responses API for the stand-in: what a request asks, what is refused, and the answer."""

import json

from strict import ensure, name, of_arguments

# Those of the API, and `client_metadata`, which Codex sends.
PARAMETERS = {
    "client_metadata",
    "access_programs", "background", "background_options", "context_management", "conversation", "image",
    "include", "input", "instructions", "max_output_tokens", "max_tool_calls", "metadata", "model",
    "moderation", "parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier",
    "store", "stream", "stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs",
    "top_p", "truncation", "user",
}
FOLLOWING = ("function_call", "custom_tool_call", "reasoning")


def texts(content):
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or [] if "text" in part]


def items(body):
    given = body["input"]
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def declared(tools, namespace=None):
    """Each tool, with the name of its namespace."""
    for tool in tools:
        if tool["type"] == "namespace":
            yield from declared(tool["tools"], tool["name"])
        else:
            yield tool, namespace


def tools_of(body):
    """Those of a request, and those that its input adds."""
    added = [tool for item in items(body) for tool in item.get("tools", [])]
    return list(declared(body.get("tools", []) + added))


def read(ask, body):
    """Fills in what a request asks."""
    turns = [item for item in items(body) if item.get("role") and "content" in item]
    last = items(body)[-1]
    outputs = ("function_call_output", "custom_tool_call_output")
    ask.results = texts(last["output"]) if last.get("type") in outputs else []
    tools = tools_of(body)
    ask.tools = [(t["name"], t.get("parameters") or {}) for t, _ in tools if t["type"] == "function"]
    ask.customs = [tool["name"] for tool, _ in tools if tool["type"] == "custom"]
    # The input of a custom tool is any text.
    ask.tools += [(name, {"enum": ["vendor"]}) for name in ask.customs]
    ask.namespaces = {tool.get("name"): namespace for tool, namespace in tools if namespace}
    ask.schema = body.get("text", {}).get("format", {}).get("schema")
    ask.limit = body["max_output_tokens"]
    ask.stop = []
    return [(item["role"], texts(item["content"])) for item in turns]


def refuse(body):
    """Refuses what OpenAI refuses."""
    ensure(set(body) <= PARAMETERS, f"Unknown parameters {set(body) - PARAMETERS}")
    ensure(body["store"] is False, "store is not false")
    ensure(body["max_output_tokens"] >= 16, "max_output_tokens: integer below minimum value")
    ensure(body.get("stream") or "stream_options" not in body, "stream_options without stream")
    for tool, _ in tools_of(body):
        ensure(tool["type"] in ("function", "custom", "tool_search"), f"no tool {tool['type']}")
        name(tool.get("name", "n"))
        if tool["type"] == "function":
            ensure("strict" in tool and "parameters" in tool, "Missing required parameter")
            if tool["parameters"]:
                of_arguments(tool["parameters"])
    choice, names = body.get("tool_choice"), [tool.get("name") for tool in body.get("tools", [])]
    if isinstance(choice, dict) and "name" in choice:
        ensure(choice["name"] in names, "Tool choice not found in 'tools' parameter.")
    ensure(choice != "required" or names, "Tool choice must be specified with 'tools' parameter.")
    given, waiting = items(body), set()
    ensure(given, "input is empty")
    for at, item in enumerate(given):
        kind = item.get("type", "message")
        if kind in ("function_call", "custom_tool_call"):
            ensure(1 <= len(item["call_id"]) <= 64, "call_id: string too long")
            name(item["name"])
            waiting.add(item["call_id"])
        elif kind in ("function_call_output", "custom_tool_call_output"):
            ensure(item["call_id"] in waiting, "No tool call found for function call output")
            waiting.remove(item["call_id"])
        elif kind == "reasoning":
            content, id = item.get("encrypted_content") or "", item.get("id")
            ensure(content.startswith("gAAAA."), "The encrypted content could not be verified.")
            ensure(id in (None, content[6:]), "Encrypted content item_id did not match")
            follows = given[at + 1] if at + 1 < len(given) else {}
            ensure(
                follows.get("role") == "assistant" or follows.get("type") in FOLLOWING,
                "reasoning was provided without its required following item",
            )
        elif kind == "message":
            ensure(item["content"], "no content")
    ensure(not waiting, "No tool output found for function call")


def answer(ask, calls, words, why):
    output = []
    if calls:
        summary = [{"type": "summary_text", "text": "A tool is needed."}]
        output.append({"id": "rs_1", "type": "reasoning", "summary": summary,
                       "encrypted_content": "gAAAA.rs_1"})
    for id, called, given in calls:
        item = {"id": f"ctc_{id}", "status": "completed", "call_id": id, "name": called}
        if called in ask.customs:
            item |= {"type": "custom_tool_call", "input": "vendor"}
        else:
            item |= {"id": f"fc_{id}", "type": "function_call", "arguments": json.dumps(given)}
        if called in ask.namespaces:
            item["namespace"] = ask.namespaces[called]
        output.append(item)
    if not calls:
        content = [{"type": "output_text", "text": "".join(words), "annotations": [], "logprobs": []}]
        output.append({"id": "msg_1", "type": "message", "role": "assistant",
                       "status": "completed", "content": content})
    count = len(words) + len(calls)
    usage = {"input_tokens": 20, "output_tokens": count, "total_tokens": 20 + count,
             "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
             "output_tokens_details": {"reasoning_tokens": 0}}
    cut = why is True and not calls
    details = {"reason": "max_output_tokens"} if cut else None
    begun = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "error": None,
             "incomplete_details": None, "instructions": None, "metadata": {}, "output": [],
             "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
             "status": "in_progress", "usage": None}
    status = "incomplete" if cut else "completed"
    whole = begun | {"status": status, "incomplete_details": details, "output": output, "usage": usage}
    if not ask.streamed:
        return whole
    events = [("created", {"response": begun}), ("in_progress", {"response": begun})]
    for at, item in enumerate(output):
        events += pieces(at, item, words)
    events.append((status, {"response": whole}))
    return [
        {"type": f"response.{kind}", "sequence_number": at} | event
        for at, (kind, event) in enumerate(events)
    ]


def pieces(at, item, words):
    place = {"output_index": at, "item_id": item["id"]}
    empty = {"arguments": "", "input": "", "content": [], "summary": []}
    started = {key: empty.get(key, value) for key, value in item.items()}
    if "status" in item:
        started["status"] = "in_progress"
    events = [("output_item.added", {"output_index": at, "item": started})]
    if item["type"] == "message":
        place["content_index"] = 0
        part = item["content"][0]
        events.append(("content_part.added", place | {"part": part | {"text": ""}}))
        events += [("output_text.delta", place | {"delta": word, "logprobs": []}) for word in words]
        events.append(("output_text.done", place | {"text": part["text"], "logprobs": []}))
        events.append(("content_part.done", place | {"part": part}))
    elif item["type"] == "reasoning":
        place["summary_index"] = 0
        part = item["summary"][0]
        events.append(("reasoning_summary_part.added", place | {"part": part | {"text": ""}}))
        events.append(("reasoning_summary_text.delta", place | {"delta": part["text"]}))
        events.append(("reasoning_summary_text.done", place | {"text": part["text"]}))
        events.append(("reasoning_summary_part.done", place | {"part": part}))
    elif item["type"] == "function_call":
        given = item["arguments"]
        for half in (given[:3], given[3:]):
            events.append(("function_call_arguments.delta", place | {"delta": half}))
        done = {"arguments": given, "name": item["name"]}
        events.append(("function_call_arguments.done", place | done))
    return events + [("output_item.done", {"output_index": at, "item": item})]
