"""A stand-in for the vendors, in their own formats: Chat Completions and Responses below /openai,
Messages below /anthropic, generateContent below /gemini. It knows the markers of the sandbox, counts, and refuses
what the vendors refuse (strict.py).

GET /calls?text=... answers how many requests had this text in their body.
"""

import http.server
import json
import re
import sys
import threading
import time
import urllib.parse

import responses
import strict

BODIES = []
LOCK = threading.Lock()


def texts(content):
    """The texts of a content, which may be one or parts."""
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or [] if "text" in part]


def instance(schema, root=None):
    root = root or schema
    if "$ref" in schema:
        for name in schema["$ref"].removeprefix("#/").split("/"):
            root = root[name]
        return instance(root)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: instance(properties[name], root) for name in schema.get("required", [])}
    if kind == "array":
        return [instance(schema["items"], root)]
    return {"integer": 7, "number": 0.5, "boolean": True}.get(kind, "vendor")


class Ask:
    """What a request asks, whichever vendor's format it is in."""

    def __init__(self, path, body):
        self.streamed = bool(body.get("stream")) or "streamGenerateContent" in path
        if path.endswith("/responses"):
            turns = responses.read(self, body)
        elif path.startswith("/openai"):
            turns = [(m["role"], texts(m.get("content"))) for m in body["messages"]]
            self.results = turns[-1][1] if turns[-1][0] == "tool" else []
            tools = [tool["function"] for tool in body.get("tools", [])]
            self.tools = [(t["name"], t.get("parameters", {})) for t in tools]
            form = body.get("response_format", {}).get("json_schema", {})
            self.schema = form.get("schema")
            self.limit = body.get("max_completion_tokens") or body["max_tokens"]
            self.stop = body.get("stop") or []
        elif path.startswith("/anthropic"):
            turns = [(m["role"], texts(m["content"])) for m in body["messages"]]
            # Some agents end with instructions, such as how many tokens are left.
            said = [m["content"] for m in body["messages"] if m["role"] != "system"]
            last = [] if isinstance(said[-1], str) else said[-1]
            results = [b.get("content", "") for b in last if b["type"] == "tool_result"]
            self.results = [text for result in results for text in texts(result)]
            self.tools = [(t["name"], t["input_schema"]) for t in body.get("tools", [])]
            self.schema = body.get("output_config", {}).get("format", {}).get("schema")
            self.limit = body["max_tokens"]
            self.stop = body.get("stop_sequences", [])
        else:
            turns = [(c["role"], texts(c["parts"])) for c in body["contents"]]
            results = [part.get("functionResponse") for part in body["contents"][-1]["parts"]]
            self.results = [str(result["response"]) for result in results if result]
            declared = [d for t in body.get("tools", []) for d in t["functionDeclarations"]]
            self.tools = [(d["name"], d.get("parametersJsonSchema", {})) for d in declared]
            config = body["generationConfig"]
            self.schema = config.get("responseJsonSchema")
            self.limit = config["maxOutputTokens"]
            self.stop = config.get("stopSequences", [])
        said = [" ".join(text) for role, text in turns if role == "user" and text]
        self.prompt = said[-1] if said else ""
        slow = re.search(r"\[\[slow:(\d+)\]\]", self.prompt)
        self.slow = int(slow.group(1)) if slow else 0

    def has(self, marker):
        return f"[[{marker}]]" in self.prompt

    def calls(self):
        if self.results:
            return []
        schemas = dict(self.tools)
        named = re.findall(r"\[\[tool(?::(\w+))?\]\]", self.prompt)
        names = [name or self.tools[0][0] for name in named if self.tools]
        names = [name for name in names if name in schemas]
        # Arguments are an object, also of a function without a schema.
        return [(f"call_{at}", n, instance({"type": "object", **schemas[n]})) for at, n in enumerate(names)]

    def words(self):
        """The words of the answer, and whether it ends at the limit or at a stop sequence."""
        text = "The vendor has read this and answers at some length: " + self.prompt + ". So be it."
        if self.results:
            text = "The tools say " + ", ".join(self.results) + ". So be it."
        if self.schema:
            text = json.dumps(instance(self.schema))
        for stop in self.stop:
            if stop in text:
                return text[: text.index(stop)].split(" "), stop
        words = text.split(" ")
        return words[: self.limit], True if len(words) > self.limit else None


def pieces(words):
    return [word if at == 0 else " " + word for at, word in enumerate(words)]


def openai(ask, calls, words, why):
    usage = {"prompt_tokens": 20, "completion_tokens": len(words) + len(calls)}
    usage["total_tokens"] = 20 + usage["completion_tokens"]
    reason = "tool_calls" if calls else "length" if why is True else "stop"
    made = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for id, name, given in calls
    ]
    if not ask.streamed:
        message = {"role": "assistant", "content": None if calls else " ".join(words)}
        if made:
            message["tool_calls"] = made
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return {"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage}

    def chunk(delta, reason=None):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"id": "c", "object": "chat.completion.chunk", "choices": [choice], "usage": None}

    events = [chunk({"role": "assistant", "content": ""})]
    for at, call in enumerate(made):
        given = call["function"]["arguments"]
        begun = {**call, "index": at, "function": {"name": call["function"]["name"], "arguments": ""}}
        events.append(chunk({"tool_calls": [begun]}))
        for half in (given[:3], given[3:]):
            more = {"index": at, "function": {"arguments": half}}
            events.append(chunk({"tool_calls": [more]}))
    events += [chunk({"content": piece}) for piece in ([] if calls else pieces(words))]
    return events + [chunk({}, reason), {"id": "c", "choices": [], "usage": usage}, "[DONE]"]


def anthropic(ask, calls, words, why):
    usage = {"input_tokens": 20, "output_tokens": len(words) + len(calls)}
    reason = "tool_use" if calls else "max_tokens" if why is True else "end_turn"
    end = {"stop_reason": reason, "stop_sequence": None}
    if isinstance(why, str) and not calls:
        end = {"stop_reason": "stop_sequence", "stop_sequence": why}
    blocks = [{"type": "tool_use", "id": id, "name": n, "input": given} for id, n, given in calls]
    blocks = blocks or [{"type": "text", "text": " ".join(words)}]
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m"}
    if not ask.streamed:
        return {**message, "content": blocks, **end, "usage": usage}
    started = {**message, "content": [], "usage": {"input_tokens": 20, "output_tokens": 1}}
    events = [{"type": "message_start", "message": started}]
    for at, block in enumerate(blocks):
        if block["type"] == "text":
            empty = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(words)]
        else:
            empty = {**block, "input": {}}
            given = json.dumps(block["input"])
            halves = (given[:3], given[3:])
            deltas = [{"type": "input_json_delta", "partial_json": half} for half in halves]
        events.append({"type": "content_block_start", "index": at, "content_block": empty})
        events += [{"type": "content_block_delta", "index": at, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": at})
    return events + [{"type": "message_delta", "delta": end, "usage": usage}, {"type": "message_stop"}]


def gemini(ask, calls, words, why):
    usage = {"promptTokenCount": 20, "candidatesTokenCount": len(words) + len(calls)}
    reason = "MAX_TOKENS" if why is True and not calls else "STOP"

    def chunk(parts, reason=None):
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
        if reason:
            candidate["finishReason"] = reason
        return {"candidates": [candidate], "usageMetadata": usage}

    signed = {"thoughtSignature": "c2ln"}
    made = [{"functionCall": {"name": name, "args": given}} for _, name, given in calls]
    if made:
        made[0] |= signed
    if not ask.streamed:
        return chunk(made or [{"text": " ".join(words)}], reason)
    told = [[part] for part in made] or [[{"text": piece}] for piece in pieces(words)]
    return [chunk(parts) for parts in told] + [chunk([], reason)]


def of_responses(ask, calls, words, why):
    return responses.answer(ask, calls, pieces(words), why)


VENDORS = {"openai": openai, "anthropic": anthropic, "gemini": gemini, "responses": of_responses}
CHECKS = strict.VENDORS | {"responses": responses.refuse}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query)
        with LOCK:
            count = sum(query["text"][0] in body for body in BODIES)
        self.send(200, "application/json", json.dumps(count).encode())

    def do_POST(self):
        text = self.rfile.read(int(self.headers["content-length"])).decode()
        with LOCK:
            BODIES.append(text)
        vendor = self.path.split("/")[1]
        if self.path.endswith("/responses"):
            vendor = "responses"
        try:
            CHECKS[vendor](json.loads(text))
        except strict.Refused as why:
            print("refused:", why, text, file=sys.stderr, flush=True)
            error = {"message": str(why), "type": "invalid_request_error"}
            body = json.dumps({"type": "error", "error": error}).encode()
            return self.send(400, "application/json", body)
        ask = Ask(self.path, json.loads(text))
        time.sleep(ask.slow)
        for marker, status in (("reject", 400), ("rate_limit", 429)):
            if ask.has(marker):
                error = json.dumps({"error": {"message": "no", "type": "no"}}).encode()
                return self.send(status, "application/json", error)
        words, why = ask.words()
        answer = VENDORS[vendor](ask, ask.calls(), words, why)
        if not ask.streamed:
            status = 500 if ask.has("fail") else 200
            return self.send(status, "application/json", json.dumps(answer).encode())
        if ask.has("fail"):
            answer = answer[:5]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event in answer:
            name = event.get("type") if isinstance(event, dict) else None
            data = event if isinstance(event, str) else json.dumps(event)
            line = f"event: {name}\n" if name else ""
            self.wfile.write(f"{line}data: {data}\n\n".encode())
        self.close_connection = True


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
