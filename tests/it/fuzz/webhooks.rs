//! Hostile webhook addresses: none reaches the internal network, in any notation.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use proptest::prelude::*;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Size, check, json::text};
use crate::common::TestApp;

/// Notations of addresses, and whether each is public.
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
                let stored = made.json()["url"].as_str().unwrap().to_owned();
                let url = url::Url::parse(&stored).unwrap();
                let inside = match url.host().unwrap() {
                    url::Host::Ipv4(ip) => inner(ip.into()),
                    url::Host::Ipv6(ip) => inner(ip.into()),
                    url::Host::Domain(_) => true,
                };
                assert!(
                    !inside && (public || user.contains("8.8")),
                    "{stored} is inside"
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
