"""What a schema cannot say, made true of requests that are meant to be good.

The document names every rule that JSON Schema has a word for. Some rules depend on the server or
on the moment: which providers it has, what time it is, which names are taken, what is on the
account. A request drawn from the schema alone breaks them by chance, and 422 is then the right
answer. So a good request gets a provider that exists, a time that lies ahead, and so on, and
nothing else is changed; it must then be accepted. Requests that are meant to be bad are sent as
they were drawn. No operation, check or answer is passed over here.
"""

import datetime
import decimal
import itertools
import json
import os
import secrets
import urllib.request

import schemathesis

CREDITS = {"max_cost", "spend_limit", "credits", "amount"}
MODELS = {
    "text": "sandbox-text-1",
    "image": "sandbox-image-1",
    "video": "sandbox-video-1",
    "audio": "sandbox-speech-1",
}
RUN = secrets.token_hex(4)
NUMBERS = itertools.count(1)
# What the server itself has handed out.
CURSORS = {}


def unique():
    return f"{RUN}-{next(NUMBERS)}"


def positive(case):
    return case.meta is not None and case.meta.generation.mode.is_positive


def call(method, path, body=None):
    """Prepares something by a call of its own."""
    headers = {
        "Authorization": f"Bearer {os.environ['API_TEST_TOKEN']}",
        "Content-Type": "application/json",
    }
    data = None if body is None else json.dumps(body).encode()
    url = os.environ["API_TEST_URL"] + path
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        text = answer.read()
    return json.loads(text) if text else None


@schemathesis.hook
def before_call(ctx, case, kwargs):
    own = os.environ["API_TEST_KEY_ID"]
    if case.path == "/v1/api-keys/{id}" and case.method == "DELETE":
        if str((case.path_parameters or {}).get("id")) == own:
            # Another key: with its own this run would end here.
            case.path_parameters["id"] = call("POST", "/v1/api-keys", {"name": "x"})["id"]
    if case.path == "/v1/auth/login" and isinstance(case.body, dict):
        mend_login(case)
    if not positive(case):
        return
    if isinstance(case.query, dict):
        mend_query(case)
    if case.headers and "Idempotency-Key" in case.headers:
        # A key that was used with another body is refused.
        case.headers["Idempotency-Key"] = (case.headers["Idempotency-Key"][:200] + unique())
    if isinstance(case.body, dict):
        mend_body(case)


@schemathesis.hook
def after_call(ctx, case, response):
    if case.path.startswith("/v1/") and response.status_code == 200 and case.method == "GET":
        try:
            cursor = response.json().get("next_cursor")
        except (ValueError, AttributeError):
            return
        if cursor:
            CURSORS[case.path] = cursor


def mend_login(case):
    """The run's own user, of whom answers tell, must not be locked out by wrong passwords."""
    body = case.body
    own = os.environ["API_TEST_EMAIL"]
    if positive(case) and (body["email"].lower() == own or next(NUMBERS) % 2):
        body["email"], body["password"] = own, os.environ["API_TEST_PASSWORD"]
    elif str(body.get("email")).lower() == own:
        body["email"] = f"x{own}"


def mend_query(case):
    query = case.query
    if "cursor" in query:
        # Only the server makes cursors.
        if case.path in CURSORS:
            query["cursor"] = CURSORS[case.path]
        else:
            del query["cursor"]
    if "group_by" in query:
        # No name twice.
        query["group_by"] = ",".join(dict.fromkeys(str(query["group_by"]).split(",")))
    if "from" in query and "to" in query:
        # A span of time that is not empty.
        first, last = sorted([str(query["from"]), str(query["to"])])
        query["from"] = "1" + first[1:] if first >= last or first[:4] == last[:4] else first
        query["to"] = "2" + last[1:] if first >= last or first[:4] == last[:4] else last
    elif "from" in query:
        query["from"] = "1" + str(query["from"])[1:]


def mend_body(case):
    # Integers are written without a point here, though JSON Schema takes 1.0 for one too.
    body = case.body = whole(case.body)
    path = case.path
    for name in CREDITS & body.keys():
        body[name] = credits(body[name], name)
    if path.startswith("/v1/generate/") or path == "/v1/credits/estimate":
        mend_generation(body, body.get("type") or path.rsplit("/", 1)[-1])
    elif path == "/v1/account":
        for modality, default in (body.get("defaults") or {}).items():
            if default:
                default["provider"] = "sandbox"
                if default.get("model") is not None:
                    default["model"] = MODELS[modality]
    elif path == "/v1/auth/password":
        body["current_password"] = body["new_password"] = os.environ["API_TEST_PASSWORD"]
    elif path == "/v1/api-keys":
        if body.get("expires_at") is not None:
            year = datetime.datetime.now(datetime.timezone.utc).year + 1
            body["expires_at"] = f"{year}{str(body['expires_at'])[4:]}"
            if body["expires_at"][4:10] == "-02-29":
                body["expires_at"] = f"{year}-02-28{body['expires_at'][10:]}"
    elif path.startswith("/v1/templates"):
        for name in ("prompt", "system_prompt"):
            if isinstance(body.get(name), str):
                # Braces are the template's own syntax.
                body[name] = body[name].replace("{", "(").replace("}", ")")
    elif path == "/v1/webhooks":
        # An account has 20 at most. The newest may be in use by the scenario.
        for webhook in call("GET", "/v1/webhooks?per_page=100")["data"][10:]:
            call("DELETE", f"/v1/webhooks/{webhook['id']}")
        body["url"] = f"http://127.0.0.1:9/{unique()}"
    elif path == "/v1/admin/accounts":
        body["email"] = f"{unique()}@example.com"
    elif path.endswith("/credits"):
        # A refund needs a generation that was charged, and only a refund takes one.
        body.pop("generation", None)
        if body.get("kind") == "refund":
            body["kind"] = "grant"
        if body.get("amount") is None:
            body["amount"] = "1"
        body["reference"] = (body["reference"] + unique())[-255:]


def whole(value):
    if isinstance(value, dict):
        return {name: whole(member) for name, member in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def mend_generation(body, modality):
    if body.get("provider") is not None:
        body["provider"] = "sandbox"
    if body.get("model") is not None:
        body["model"] = MODELS[modality]
    parameters = body.get("parameters") or {}
    if modality == "audio" and parameters.get("voice") is not None:
        del parameters["voice"]
    if body.get("template_id") is not None:
        body.pop("template_id")
        body.pop("template_variables", None)


def credits(value, name):
    """An amount that has at most six decimals, and suffices as a request's own ceiling."""
    if value is None:
        return None
    try:
        amount = decimal.Decimal(str(value))
    except decimal.InvalidOperation:
        return "1000000"
    if name == "max_cost":
        return value if 10**6 <= amount < 10**12 and amount == round(amount, 6) else "1000000"
    if not 0 < amount < 10**6 or amount != round(amount, 6):
        return "1000"
    return value
