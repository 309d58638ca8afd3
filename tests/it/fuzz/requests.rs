//! Requests of strangers through the whole router: every operation of the document, with what
//! was valid, changed. Whatever comes, the answer is a documented one, and the credits agree.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use axum::body::Body;
use gensvc::domain::page::Cursor;
use http::{HeaderName, HeaderValue, Method, Request};
use proptest::{collection::vec, option, prelude::*, sample::Index};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    Size, check,
    json::{Cut, Edit, cut, cuts, edit, edits, text, value},
};
use crate::{
    common::{Account, Answer, TestApp},
    openapi_walk::{Objects, Operation, every_operation, objects},
    v1::admin::operator,
};

/// So many cases share an account.
const SHARED: usize = 40;

/// Who asks.
#[derive(Debug, Clone)]
enum Who {
    Key,
    Session,
    Operator,
    Nobody,
    /// A key that was changed.
    Mangled(Vec<Cut>),
    Header(Vec<u8>),
}

/// What is sent.
#[derive(Debug, Clone)]
enum Sent {
    /// One of the valid bodies, changed as a value and then as a text.
    Changed(Index, Vec<Edit>, Vec<Cut>),
    Value(Value),
    Bytes(Vec<u8>),
    Long(usize),
}

#[derive(Debug, Clone)]
struct Case {
    operation: Index,
    who: Who,
    sent: Sent,
    content_type: Vec<u8>,
    headers: Vec<(&'static str, Vec<u8>)>,
    query: Option<String>,
    /// In place of an id of the path.
    id: Option<String>,
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![
        20 => Just(Who::Key),
        4 => Just(Who::Session),
        1 => Just(Who::Operator),
        1 => Just(Who::Nobody),
        2 => cuts(3).prop_map(Who::Mangled),
        1 => vec(any::<u8>(), 0..60).prop_map(Who::Header),
        1 => text().prop_map(|text| Who::Header(format!("Bearer {text}").into_bytes())),
    ]
}

fn sent() -> impl Strategy<Value = Sent> {
    let whole = (any::<Index>(), edits(3)).prop_map(|(at, e)| Sent::Changed(at, e, Vec::new()));
    prop_oneof![
        12 => whole,
        5 => (any::<Index>(), edits(1), cuts(3)).prop_map(|(at, e, c)| Sent::Changed(at, e, c)),
        1 => value().prop_map(Sent::Value),
        1 => vec(any::<u8>(), 0..60).prop_map(Sent::Bytes),
        1 => (262_100..262_200_usize).prop_map(Sent::Long),
    ]
}

fn header() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    let free = prop_oneof![
        text().prop_map(String::into_bytes),
        vec(any::<u8>(), 0..300),
        "[!-~]{1,260}".prop_map(String::into_bytes),
    ];
    // No real waiting: `wait` with a number is for tests of its own.
    let prefer = [
        "respond-async",
        "wait",
        "wait=",
        "wait=0",
        "wait=-1",
        "respond-async, respond-async;x=\"",
        "handling=lenient",
        ",,;=",
    ];
    let names = [
        "idempotency-key",
        "x-request-id",
        "accept",
        "content-encoding",
        "range",
        "origin",
        "x-forwarded-for",
        "traceparent",
        "if-none-match",
        "host",
    ];
    prop_oneof![
        3 => (prop::sample::select(names.to_vec()), free),
        1 => prop::sample::select(prefer.to_vec()).prop_map(|v| ("prefer", v.into())),
    ]
}

/// The cursor of some list, perhaps changed.
fn cursor() -> impl Strategy<Value = String> {
    let made = prop_oneof![
        (prop::sample::select(b"kltwdasg".to_vec()), any::<i64>())
            .prop_map(|(kind, id)| Cursor::Number(kind, id)),
        any::<u128>().prop_map(|id| Cursor::Generation(uuid::Uuid::from_u128(id))),
    ];
    (made, cuts(2)).prop_map(|(cursor, cuts)| {
        let mut bytes = cursor.encode().into_bytes();
        cut(&mut bytes, &cuts);
        escaped(&bytes)
    })
}

fn escaped(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(*byte).to_string()
            }
            _ => format!("%{byte:02x}"),
        })
        .collect()
}

fn query() -> impl Strategy<Value = String> {
    let names = [
        "cursor",
        "per_page",
        "type",
        "status",
        "provider",
        "model",
        "created_after",
        "created_before",
        "kind",
        "generation",
        "from",
        "to",
        "group_by",
        "email",
        "zzz",
    ];
    let values = prop_oneof![
        2 => cursor(),
        2 => text().prop_map(|text| escaped(text.chars().take(300).collect::<String>().as_bytes())),
        1 => prop::sample::select(vec!["1", "100", "101", "day,type", "api_key,api_key", "charge",
            "text", "completed", "2027-01-15T00:00:00Z", "%ff", "%", "%zz", "a%00"])
            .prop_map(str::to_owned),
    ];
    let pairs = vec((prop::sample::select(names.to_vec()), values), 1..4);
    let pairs = pairs.prop_map(|pairs| {
        let pairs: Vec<_> = pairs.iter().map(|(n, v)| format!("{n}={v}")).collect();
        pairs.join("&")
    });
    prop_oneof![4 => pairs, 1 => "[!-~]{0,40}"]
}

fn id() -> impl Strategy<Value = String> {
    prop_oneof![
        text().prop_map(|text| escaped(text.chars().take(60).collect::<String>().as_bytes())),
        "[!-~]{1,40}",
        any::<i64>().prop_map(|id| id.to_string()),
        any::<u128>().prop_map(|id| uuid::Uuid::from_u128(id).to_string()),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let json = b"application/json".to_vec();
    let content_type = prop_oneof![
        15 => Just(json),
        1 => text().prop_map(String::into_bytes),
        1 => Just(b"application/json; charset=latin1; x=\"".to_vec()),
    ];
    (
        any::<Index>(),
        who(),
        sent(),
        content_type,
        vec(header(), 0..3),
        option::weighted(0.2, query()),
        option::weighted(0.1, id()),
    )
        .prop_map(
            |(operation, who, sent, content_type, headers, query, id)| Case {
                operation,
                who,
                sent,
                content_type,
                headers,
                query,
                id,
            },
        )
}

/// What some cases share: an account, and what it has.
struct Stage {
    account: Account,
    session: String,
    objects: Objects,
    operator: String,
}

impl Stage {
    async fn new(app: &TestApp) -> Self {
        let account = app.account("1000").await;
        Self {
            session: app.login(&account).await,
            objects: objects(app, &account).await,
            operator: operator(app).await,
            account,
        }
    }

    /// Valid bodies of an operation.
    fn bodies(&self, operation: &Operation) -> Vec<Value> {
        let mut all: Vec<Value> = operation.body().into_iter().collect();
        let template = self.objects.template_id;
        all.extend(match operation.path.as_str() {
            "/v1/generate/text" => vec![
                json!({"prompt": "[[fail]]", "max_cost": "1.5"}),
                json!({"prompt": "x", "stream": true, "system_prompt": "y"}),
                json!({"prompt": "x", "template_id": template, "template_variables": {"a": [1]}}),
                json!({"prompt": "x", "provider": "sandbox", "model": "sandbox-text-1",
                    "parameters": {"max_tokens": 8, "temperature": 0.5}}),
            ],
            "/v1/generate/image" => vec![json!({"prompt": "x", "negative_prompt": "y",
                "provider": "sandbox", "parameters": {"size": "256x256", "quality": "hd",
                "style": "vivid", "n": 1}})],
            "/v1/generate/audio" => vec![json!({"prompt": "x", "max_cost": 2,
                "parameters": {"voice": "aria", "speed": 1.5, "format": "wav"}})],
            "/v1/credits/estimate" => vec![
                json!({"type": "video", "prompt": "x", "parameters": {"duration": 3}}),
                json!({"type": "image", "prompt": "x", "parameters": {"n": 3}, "max_cost": "1"}),
                json!({"type": "text", "prompt": "x", "template_id": template}),
            ],
            "/v1/api-keys" => vec![
                json!({"name": "x", "spend_limit": "1.5", "spend_period": "day",
                "rate_limit_per_minute": 5, "expires_at": "2099-01-01T00:00:00Z"}),
            ],
            "/v1/account" => vec![json!({"defaults": {"text": {"provider": "sandbox",
                "model": "sandbox-text-1"}, "image": null}})],
            "/v1/templates" | "/v1/templates/{id}" => {
                vec![json!({"name": "x", "prompt": "{% for i in a %}{{ i }}{% endfor %}"})]
            }
            _ => Vec::new(),
        });
        all
    }

    /// The request of a case; `None` when there is none such.
    fn request(&self, case: &Case, operation: &Operation) -> Option<Request<Body>> {
        let mut url = if operation.is_admin() {
            // An account that is not there: the cases' own must not be suspended.
            operation.path.replace("{id}", "999999999")
        } else {
            operation.url(&self.objects)
        };
        if let (Some(id), Some((start, rest))) = (&case.id, operation.path.split_once('{')) {
            let end = rest.split_once('}').map_or("", |(_, end)| end);
            url = format!("{start}{id}{}", end.replace("{delivery}", "1"));
            if url.contains('{') {
                return None;
            }
        }
        if let Some(query) = &case.query {
            url = format!("{url}?{query}");
        }
        let bodies = self.bodies(operation);
        let bytes = match &case.sent {
            _ if bodies.is_empty() => Vec::new(),
            Sent::Changed(at, edits, cuts) => {
                let mut value = bodies[at.index(bodies.len())].clone();
                edit(&mut value, edits);
                let mut bytes = value.to_string().into_bytes();
                cut(&mut bytes, cuts);
                bytes
            }
            Sent::Value(value) => value.to_string().into_bytes(),
            Sent::Bytes(bytes) => bytes.clone(),
            Sent::Long(bytes) => vec![b' '; *bytes],
        };
        let mut request = Request::builder()
            .method(operation.method.clone())
            .uri(&url);
        if !bodies.is_empty()
            && let Ok(value) = HeaderValue::from_bytes(&case.content_type)
        {
            request = request.header("content-type", value);
        }
        let mut token = self.account.key.clone().into_bytes();
        let authorization = match &case.who {
            Who::Nobody => None,
            Who::Key if operation.is_admin() => Some(self.operator.clone().into_bytes()),
            Who::Key => Some(token),
            Who::Session => Some(self.session.clone().into_bytes()),
            Who::Operator => Some(self.operator.clone().into_bytes()),
            Who::Mangled(cuts) => {
                cut(&mut token, cuts);
                Some(token)
            }
            Who::Header(_) => None,
        };
        let mut authorization = authorization.map(|token| [b"Bearer ", &token[..]].concat());
        if let Who::Header(bytes) = &case.who {
            authorization = Some(bytes.clone());
        }
        let given = authorization.map(|bytes| ("authorization", bytes));
        for (name, bytes) in given.iter().chain(&case.headers) {
            if let Ok(value) = HeaderValue::from_bytes(bytes) {
                request = request.header(HeaderName::from_static(name), value);
            }
        }
        request.body(Body::from(bytes)).ok()
    }
}

/// A documented answer, and no accident.
fn assert_sound(operation: &Operation, answer: &Answer) {
    let status = answer.status.as_u16();
    assert_ne!(status, 500, "{}", answer.text);
    if status == 503 {
        answer.error(503, "provider_overloaded");
    }
    if answer
        .header("content-type")
        .starts_with("text/event-stream")
    {
        assert_eq!(status, 200);
        let (name, _) = answer.events().pop().unwrap();
        assert!(["completed", "failed"].contains(&name.as_str()), "{name}");
    } else {
        operation.check(answer, "made up");
    }
}

#[sqlx::test]
async fn every_operation_answers_as_documented(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options).await);
    let mut operations = every_operation();
    operations.retain(|o| !o.is_media());
    // Those with a body are more often meant.
    let bodies = every_operation();
    let bodies = bodies.into_iter().filter(|o| o.body_schema().is_some());
    operations.extend(bodies.flat_map(|o| {
        let again = || Operation {
            method: o.method.clone(),
            path: o.path.clone(),
            spec: o.spec.clone(),
        };
        [again(), again(), again()]
    }));
    let operations = Arc::new(operations);
    let stage: Arc<Mutex<Option<Arc<Stage>>>> = Arc::default();
    let count = Arc::new(AtomicUsize::new(0));
    let size = Size {
        small: 240,
        cost: 2,
    };
    let audited = Arc::clone(&app);
    check(size, case(), move |case| {
        let (app, operations) = (Arc::clone(&app), Arc::clone(&operations));
        let (stage, count) = (Arc::clone(&stage), Arc::clone(&count));
        async move {
            let n = count.fetch_add(1, Ordering::Relaxed);
            if n % SHARED == 0 {
                let next = Stage::new(&app).await;
                *stage.lock().unwrap() = Some(Arc::new(next));
                app.assert_verified().await;
            }
            let stage = stage.lock().unwrap().clone().unwrap();
            let operation = &operations[case.operation.index(operations.len())];
            let Some(request) = stage.request(&case, operation) else {
                return;
            };
            let path = request.uri().path().to_owned();
            let answer = app.send(request).await;
            if case.id.is_some() && !operation.path.is_empty() {
                // It may be another path by now.
                assert_envelope(&answer, &path);
            } else {
                assert_sound(operation, &answer);
            }
        }
    })
    .await;
    audited.idle().await;
    audited.assert_verified().await;
}

/// What is refused is refused in the envelope, and nothing breaks.
fn assert_envelope(answer: &Answer, context: &str) {
    let status = answer.status.as_u16();
    assert!(status < 500, "{context}: {}", answer.text);
    if status >= 400 {
        let code = answer.json()["error"]["code"].clone();
        answer.error(status, code.as_str().unwrap());
    }
}

#[sqlx::test]
async fn any_path_and_method_gets_the_envelope(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options).await);
    let account = app.account("1").await;
    let known: Vec<String> = every_operation().into_iter().map(|o| o.path).collect();
    let known = prop::sample::select(known);
    let changed = (known, cuts(3)).prop_map(|(path, cuts)| {
        let mut bytes = path.into_bytes();
        cut(&mut bytes, &cuts);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let path = prop_oneof![3 => changed, 1 => "/[!-~]{0,60}", 1 => id().prop_map(|id| format!("/v1/{id}"))];
    let method = prop::sample::select(vec![
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW",
    ]);
    let size = Size {
        small: 300,
        cost: 1,
    };
    check(
        size,
        (method, path, query()),
        move |(method, path, query)| {
            let (app, key) = (Arc::clone(&app), account.key.clone());
            async move {
                let method: Method = method.parse().unwrap();
                let request = Request::builder()
                    .method(method.clone())
                    .uri(format!("{path}?{query}"))
                    .header("authorization", format!("Bearer {key}"));
                let Ok(request) = request.body(Body::empty()) else {
                    return;
                };
                // A logout or a deletion by chance is none of this test's matters.
                let answer = app.send(request).await;
                if method == Method::HEAD {
                    assert!(answer.status.as_u16() < 500);
                } else {
                    assert_envelope(&answer, &path);
                }
            }
        },
    )
    .await;
}
