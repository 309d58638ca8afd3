//! The console: pages by URL, as a browser asks for them.

mod compare;
mod forms;
mod models;
mod once;
pub mod operator;
mod pages;
mod pictures;
mod playground;
mod safety;
mod search;
mod tables;

use http::{Method, Request, StatusCode};
use serde_json::Value;

use crate::common::{Account, Answer, PASSWORD, TestApp};

/// What browsers accept.
const HTML: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

/// A browser in which somebody is logged in.
struct Browser<'a> {
    app: &'a TestApp,
    cookie: String,
}

impl<'a> Browser<'a> {
    async fn logged_in(app: &'a TestApp, account: &Account) -> Self {
        let anonymous = Browser {
            app,
            cookie: String::new(),
        };
        let fields = [("email", account.email.as_str()), ("password", PASSWORD)];
        let answer = anonymous.post("/login", &fields).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
        let cookie = answer
            .header("set-cookie")
            .split(';')
            .next()
            .unwrap()
            .to_owned();
        Self { app, cookie }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], String::new()).await
    }

    /// Gets a page that must be there.
    async fn page(&self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
        assert!(
            answer.header("content-type").starts_with("text/html"),
            "{path}"
        );
        answer.text
    }

    /// Gets the page that a form led to, with the cookies that came with the redirect.
    async fn follow(&self, answer: &Answer) -> Answer {
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
        self.get_with(answer.header("location"), &cookies(answer))
            .await
    }

    /// Gets a page with more cookies than the session's.
    async fn get_with(&self, path: &str, cookies: &str) -> Answer {
        let with = Browser {
            app: self.app,
            cookie: format!("{}; {cookies}", self.cookie),
        };
        with.get(path).await
    }

    /// Sends a form as a page of the console does.
    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let mut body = url::form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(fields);
        let headers = [
            ("origin", "http://test"),
            ("sec-fetch-site", "same-origin"),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        self.send(Method::POST, path, &headers, body.finish()).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header("host", "test").header("accept", HTML);
        if !self.cookie.is_empty() {
            request = request.header("cookie", &self.cookie);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.app.send(request.body(body.into()).unwrap()).await
    }
}

/// Returns the cookies that an answer sets, as a browser sends them back.
fn cookies(answer: &Answer) -> String {
    let set = answer.headers.get_all("set-cookie").iter();
    let set = set.map(|cookie| cookie.to_str().unwrap());
    let kept = set.filter(|cookie| !cookie.contains("Max-Age=0"));
    let pairs: Vec<_> = kept
        .map(|cookie| cookie.split(';').next().unwrap())
        .collect();
    pairs.join("; ")
}

/// Returns the token of the form in a page.
fn form_token(page: &str) -> String {
    let before = "name=\"form\" value=\"";
    let at = page.find(before).unwrap() + before.len();
    page[at..].chars().take_while(|c| *c != '"').collect()
}

/// The uuid that follows `before` in a page.
fn uuid_after(page: &str, before: &str) -> String {
    let at = page
        .find(before)
        .unwrap_or_else(|| panic!("no {before} in {page}"));
    page[at + before.len()..].chars().take(36).collect()
}

/// A page's text without its tags and the space around them.
fn words(page: &str) -> String {
    // A number is one word, also where its last decimals are small.
    let page = page.replace("<small>", "").replace("</small>", "");
    let mut text = String::new();
    for part in page.split('<').skip(1) {
        let (_, rest) = part.split_once('>').unwrap_or_default();
        if !rest.trim().is_empty() {
            text.push_str(rest.trim());
            text.push(' ');
        }
    }
    text
}

async fn generate(app: &TestApp, account: &Account, kind: &str, body: Value) -> Value {
    let path = format!("/v1/generate/{kind}");
    let answer = app.post(&account.key, &path, &body).await;
    assert!(answer.status.is_success(), "{}", answer.text);
    answer.json()
}
