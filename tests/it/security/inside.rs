//! Outgoing requests: none reaches an internal address, in any notation.

use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::TestApp;

#[sqlx::test]
async fn no_webhook_goes_inside_in_any_notation(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::with(options, &[("GENSVC__WEBHOOKS__ALLOW_PRIVATE", "false")]).await;
    let account = app.account("1").await;
    let hosts = "
        127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.1 0177.0.0.1 017700000001 127.0.0.1.
        %31%32%37.0.0.1 \u{ff11}27.0.0.1 127\u{3002}0\u{3002}0\u{3002}1 0 0.0.0.0 0x0
        169.254.169.254 2852039166 0xa9fea9fe 0251.0376.0251.0376 0xa9.254.0251.0xfe
        169.254.43518 169.254.170.2 100.100.100.200 168.63.129.16 192.0.0.192
        10.1.2.3 10.66051 172.16.0.1 172.31.255.255 192.168.1.1 3232235777 100.64.0.1
        198.18.0.1 224.0.0.1 255.255.255.255
        [::] [::1] [0:0:0:0:0:0:0:1] [::127.0.0.1] [::ffff:127.0.0.1] [::ffff:7f00:1]
        [::ffff:169.254.169.254] [::ffff:a9fe:a9fe] [::ffff:10.0.0.1] [64:ff9b::7f00:1]
        [64:ff9b::a9fe:a9fe] [2002:7f00:1::] [2001:0:53aa:64c::] [fd00:ec2::254] [fe80::1]
        [fc00::1] [fec0::1] [ff02::1] localhost LOCALHOST localhost.
        8.8.8.8@127.0.0.1 127.0.0.1:80@8.8.8.8";
    for host in hosts.split_whitespace() {
        for url in [format!("http://{host}/"), format!("https://{host}/x?y")] {
            let answer = app
                .post(&account.key, "/v1/webhooks", &json!({"url": url}))
                .await;
            assert_eq!(answer.fields()["url"], "not_allowed", "{url}");
        }
    }
    for scheme in [
        "ftp",
        "file",
        "gopher",
        "dict",
        "data",
        "javascript",
        "unix",
        "ws",
    ] {
        let body = json!({"url": format!("{scheme}://8.8.8.8/")});
        let answer = app.post(&account.key, "/v1/webhooks", &body).await;
        assert!(answer.fields().contains_key("url"), "{scheme}");
    }
    let list = app.get(&account.key, "/v1/webhooks").await.expect(200);
    assert_eq!(list["data"], json!([]));
}
