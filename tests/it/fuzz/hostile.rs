//! Hostile values of single fields: templates, webhooks' addresses, links to files, tokens.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use chrono::TimeDelta;
use http::Method;
use proptest::{collection::vec, prelude::*};
use serde_json::{Map, Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    Size, check,
    json::{cut, cuts, text, value},
};
use crate::common::{TestApp, link};

/// A template's source, of pieces that mean something.
fn source() -> impl Strategy<Value = String> {
    let pieces = vec![
        "{{ ",
        " }}",
        "{{ prompt }}",
        "{% ",
        " %}",
        "{% for i in a %}",
        "{% endfor %}",
        "{% if b %}",
        "{% else %}",
        "{% endif %}",
        "{% set c = ",
        "{% macro m(x) %}",
        "{% endmacro %}",
        "{% include 'x' %}",
        "{% extends 'x' %}",
        "{% raw %}",
        "{% endraw %}",
        "{% filter upper %}",
        "{% endfilter %}",
        "{% with d = 1 %}",
        "{% endwith %}",
        "{# ",
        " #}",
        "a",
        "b",
        "c",
        ".x",
        "[0]",
        "['a']",
        "[1:9999999999]",
        "|join",
        "|upper",
        "|tojson",
        "|replace('a', 'aaaaaaaaaaaaaaaa')",
        "|indent(99999)",
        "|default(a)",
        "|length",
        "|sort",
        "|list",
        "|batch(3)",
        "|format(1)",
        " ~ a",
        " * 99999999",
        " + 1",
        " // 0",
        " ** 99",
        " in a",
        " is defined",
        "range(99999999)",
        "m(m(1))",
        "namespace()",
        "debug()",
        "loop",
        "self",
        "caller()",
        "'é'",
        "\"",
        "'",
        "1e400",
        "\\u0000",
        "\0",
        " ",
        "\n",
        "text",
    ];
    vec(prop::sample::select(pieces), 0..24).prop_map(|pieces| pieces.concat())
}

#[sqlx::test]
async fn templates_are_taken_or_refused(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options).await);
    let account = app.account("1000").await;
    let names = prop::sample::select(vec!["a", "b", "c", "prompt", "x", "é", ""]);
    let variables = vec((names, value()), 0..4).prop_map(|all| {
        let all = all
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value));
        Value::Object(all.collect::<Map<_, _>>())
    });
    let size = Size { small: 60, cost: 4 };
    let case = (source(), proptest::option::of(source()), variables, text());
    check(size, case, move |(prompt, system, variables, text)| {
        let (app, account) = (Arc::clone(&app), account.clone());
        async move {
            let body = json!({"name": "x", "prompt": prompt, "system_prompt": system});
            let made = app.post(&account.key, "/v1/templates", &body).await;
            if made.status != 201 {
                made.fields();
                return;
            }
            let id = made.json()["id"].clone();
            let mut body = json!({"prompt": text, "template_id": id,
                "template_variables": variables, "parameters": {"max_tokens": 1}});
            let told = app.text(&account.key, body.clone()).await;
            match told.status.as_u16() {
                200 => assert_eq!(told.json()["metadata"]["template"]["id"], id),
                422 => assert!(!told.fields().is_empty()),
                // A fault that the text asked the sandbox for.
                502 => assert_eq!(told.json()["generation"]["credits"]["charged"], "0"),
                _ => panic!("{}: {}", told.status, told.text),
            }
            body["type"] = json!("text");
            let estimate = app.post(&account.key, "/v1/credits/estimate", &body).await;
            assert_eq!(
                estimate.status == 422,
                told.status == 422,
                "{}",
                estimate.text
            );
            let path = format!("/v1/templates/{id}");
            app.delete(&account.key, &path).await.expect(204);
        }
    })
    .await;
}

/// Spellings of addresses, with whether they are anyone's to reach.
fn address() -> impl Strategy<Value = (String, bool)> {
    let private = [
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "017700000001",
        "2130706433",
        "0",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0xa9fea9fe",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:a9fe:a9fe]",
        "[fe80::1]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "localhost",
        "LOCALHOST.",
        "127.0.0.1.",
        "224.0.0.1",
        "255.255.255.255",
        "[ff02::1]",
        "１２７.0.0.1",
        "127。0。0。1",
        "%31%32%37.0.0.1",
        "198.18.0.1",
        "192.0.2.1",
        "240.0.0.1",
        "[::127.0.0.1]",
        "[2001:db8::1]",
    ];
    let fixed = prop::sample::select(private.to_vec()).prop_map(|text| (text.to_owned(), false));
    let octets = (
        prop::sample::select(vec![10_u8, 127, 0, 224, 255]),
        any::<[u8; 3]>(),
    )
        .prop_map(|(a, [b, c, d])| (Ipv4Addr::new(a, b, c, d), false));
    let octets = octets.prop_flat_map(|(ip, fine)| {
        let number = u32::from(ip);
        let [a, b, c, d] = ip.octets();
        let spellings = vec![
            ip.to_string(),
            number.to_string(),
            format!("{number:#x}"),
            format!("0{number:o}"),
            format!("{a}.{}", number & 0xff_ffff),
            format!("0x{a:x}.0{b:o}.{c}.{d}"),
            format!("[{}]", ip.to_ipv6_mapped()),
        ];
        (prop::sample::select(spellings), Just(fine))
    });
    let public = any::<[u8; 3]>().prop_map(|[b, c, d]| (format!("8.{b}.{c}.{d}"), true));
    prop_oneof![3 => fixed, 3 => octets, 1 => public]
}

#[sqlx::test]
async fn no_webhook_leads_inside(_: PgPoolOptions, options: PgConnectOptions) {
    let env = [("GENSVC__WEBHOOKS__ALLOW_PRIVATE", "false")];
    let app = Arc::new(TestApp::with(options, &env).await);
    let account = app.account("1").await;
    let scheme = prop::sample::select(vec![
        "http://",
        "https://",
        "HTTPS://",
        "https:/",
        "https:",
        "//",
        "",
        "ftp://",
        "file://",
        " https://",
        "https://\\",
        "https:\\\\",
    ]);
    let user = prop::sample::select(vec!["", "", "", "a@", "a:b@", "8.8.8.8@", "8.8.8.8#@", "@"]);
    let rest = prop_oneof![
        Just(String::new()),
        Just("/".to_owned()),
        any::<u16>().prop_map(|port| format!(":{port}/x")),
        "[ -~]{0,30}".prop_map(|rest| format!("/{rest}")),
        text().prop_map(|rest| format!("/?{rest}")),
    ];
    let size = Size {
        small: 200,
        cost: 1,
    };
    check(size, (scheme, user, address(), rest), move |case| {
        let (app, account) = (Arc::clone(&app), account.clone());
        async move {
            let (scheme, user, (host, public), rest) = case;
            let url = format!("{scheme}{user}{host}{rest}");
            // A name would be looked up by a real name server.
            let named = url::Url::parse(&url).is_ok_and(|url| {
                url.domain()
                    .is_some_and(|name| !name.to_lowercase().starts_with("localhost"))
            });
            if named {
                return;
            }
            let body = json!({"url": url});
            let made = app.post(&account.key, "/v1/webhooks", &body).await;
            if made.status == 201 {
                let told = made.json()["url"].as_str().unwrap().to_owned();
                let url = url::Url::parse(&told).unwrap();
                let inside = match url.host().unwrap() {
                    url::Host::Ipv4(ip) => inner(ip.into()),
                    url::Host::Ipv6(ip) => inner(ip.into()),
                    url::Host::Domain(_) => true,
                };
                assert!(
                    !inside && (public || user.contains("8.8")),
                    "{told} is inside"
                );
                let path = format!("/v1/webhooks/{}", made.json()["id"]);
                app.delete(&account.key, &path).await.expect(204);
            } else {
                assert!(made.fields().contains_key("url"), "{url}");
            }
        }
    })
    .await;
}

fn inner(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_unspecified()
        }
        IpAddr::V6(ip) => ip == Ipv6Addr::LOCALHOST || ip.is_unspecified(),
    }
}

#[sqlx::test]
async fn only_the_link_that_was_signed_opens(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options).await);
    let account = app.account("100").await;
    let body = json!({"prompt": "x", "parameters": {"size": "256x256"}});
    let made = app.post(&account.key, "/v1/generate/image", &body).await;
    let good = link(&made.expect(200)["result"]);
    let file = app.get("", &good).await;
    assert_eq!(file.status, 200);
    let range = prop_oneof![
        Just(None),
        "bytes=[0-9]{0,20}-[0-9]{0,20}".prop_map(Some),
        "[ -~]{0,30}".prop_map(Some),
        "bytes=([0-9]{0,4}-[0-9]{0,4},){0,50}".prop_map(Some),
    ];
    let size = Size {
        small: 250,
        cost: 1,
    };
    check(size, (cuts(2), range), move |(cuts, range)| {
        let (app, good, file) = (Arc::clone(&app), good.clone(), file.bytes.clone());
        async move {
            let mut bytes = good.clone().into_bytes();
            cut(&mut bytes, &cuts);
            let Ok(url) = String::from_utf8(bytes) else {
                return;
            };
            if url
                .parse::<http::Uri>()
                .map_or(true, |uri| uri.path_and_query().is_none())
            {
                return;
            }
            let headers: Vec<_> = range.iter().map(|r| ("range", r.trim())).collect();
            let answer = app.call(Method::GET, "", &url, &headers, None).await;
            match answer.status.as_u16() {
                200 | 206 if url.starts_with("/v1/media/") => {
                    // Only what is no part of the address may have been changed.
                    let bare = url.split('#').next().unwrap();
                    assert_eq!(plain(bare), plain(&good), "{url} opens");
                    let part = file.windows(answer.bytes.len().max(1));
                    assert!(answer.bytes.is_empty() || part.into_iter().any(|w| w == answer.bytes));
                }
                416 => assert_eq!(plain(&url), plain(&good)),
                status => assert!((400..500).contains(&status), "{url}: {status}"),
            }
        }
    })
    .await;
}

/// An address without what means nothing: escapes of plain letters, empty parameters.
fn plain(url: &str) -> (String, Vec<(String, String)>) {
    let url = url::Url::parse(&format!("http://test{url}")).unwrap();
    let mut pairs: Vec<(String, String)> = url
        .query_pairs()
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    pairs.sort();
    (url.path().to_owned(), pairs)
}

#[sqlx::test]
async fn only_the_token_that_was_made_opens(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options).await);
    let account = app.account("1").await;
    let session = app.login(&account).await;
    let tokens = prop::sample::select(vec![account.key.clone(), session]);
    let size = Size {
        small: 200,
        cost: 1,
    };
    check(size, (tokens, cuts(2)), move |(token, cuts)| {
        let app = Arc::clone(&app);
        async move {
            let mut bytes = token.clone().into_bytes();
            cut(&mut bytes, &cuts);
            let value = [b"Bearer ", &bytes[..]].concat();
            let Ok(value) = http::HeaderValue::from_bytes(&value) else {
                return;
            };
            // Within the rate that a session may ask at.
            app.advance(TimeDelta::milliseconds(200));
            let request = http::Request::builder()
                .uri("/v1/auth/me")
                .header("authorization", value)
                .body(axum::body::Body::empty());
            let answer = app.send(request.unwrap()).await;
            if answer.status == 200 {
                let given = String::from_utf8(bytes).unwrap();
                assert_eq!(given.trim(), token);
            } else {
                assert_eq!(answer.status, 401, "{}", answer.text);
                let code = answer.json()["error"]["code"].clone();
                answer.error(401, code.as_str().unwrap());
            }
        }
    })
    .await;
}
