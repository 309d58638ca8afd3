//! Stored files, and how long they are kept.

use secrecy::ExposeSecret as _;

use super::*;

const S3: &str = "[media]\nstorage = \"s3\"\n[media.s3]\nbucket = \"files\"\n";

#[test]
fn settings_from_variables() {
    let c = from_env(&[
        ("GENSVC__MEDIA__URL_SECONDS", "60"),
        ("GENSVC__MEDIA__ALLOW_PRIVATE_URLS", "true"),
        ("GENSVC__RETENTION__DAYS", "30"),
        ("GENSVC__JOBS__WORKERS", "2"),
        ("GENSVC__DEFAULTS__IMAGE", "stability,sandbox"),
        ("GENSVC__DEFAULTS__VIDEO", "gemini"),
        ("GENSVC__DEFAULTS__AUDIO", "openai"),
    ])
    .unwrap();
    assert_eq!(c.media.url_seconds.as_secs(), 60);
    assert!(c.media.allow_private_urls);
    assert_eq!((*c.retention.days, *c.jobs.workers), (30, 2));
    assert_eq!(c.defaults.image, ["stability", "sandbox"]);
    assert_eq!(c.defaults.video, ["gemini"]);
    assert_eq!(c.defaults.audio, ["openai"]);
}

#[test]
fn a_bucket_from_variables() {
    let c = from_env(&[
        ("GENSVC__MEDIA__STORAGE", "s3"),
        ("GENSVC__MEDIA__S3__BUCKET", "files"),
        ("GENSVC__MEDIA__S3__REGION", "eu-central-1"),
        ("GENSVC__MEDIA__S3__ENDPOINT", "http://minio.test:9000"),
        ("GENSVC__MEDIA__S3__VIRTUAL_HOSTED", "true"),
        ("GENSVC__MEDIA__S3__PREFIX", "/a/b/"),
        ("GENSVC__MEDIA__S3__SECRET_ACCESS_KEY_ENV", "MY_SECRET"),
        ("AWS_ACCESS_KEY_ID", "AKIA"),
        ("MY_SECRET", "hunter2"),
        ("AWS_SESSION_TOKEN", "hunter2-token"),
    ])
    .unwrap();
    let s3 = c.media.s3.as_ref().unwrap();
    assert_eq!((&*s3.bucket, &*s3.region), ("files", "eu-central-1"));
    let endpoint = s3.endpoint.as_ref().unwrap();
    assert_eq!(endpoint.as_str(), "http://minio.test:9000/");
    assert!(s3.virtual_hosted);
    assert_eq!(s3.prefix, "a/b");
    let (id, secret) = s3.credentials.as_ref().unwrap();
    assert_eq!((&**id, secret.expose_secret()), ("AKIA", "hunter2"));
    let token = s3.session_token.as_ref().unwrap();
    assert_eq!(token.expose_secret(), "hunter2-token");
    assert!(!format!("{c:?}").contains("hunter2"));
    let summary = serde_json::to_value(c.summary()).unwrap();
    assert_eq!(summary["media"], "s3");
}

#[test]
fn on_aws_the_role_of_the_machine_will_do() {
    let c = from_file(S3, &[("AWS_SESSION_TOKEN", "stray")]).unwrap();
    let s3 = c.media.s3.unwrap();
    assert_eq!((&*s3.region, &*s3.prefix), ("us-east-1", ""));
    assert!(s3.endpoint.is_none() && s3.credentials.is_none() && s3.session_token.is_none());
}

#[test]
fn a_local_store_asks_for_nothing_of_s3() {
    let c = from_env(&[("AWS_ACCESS_KEY_ID", "AKIA")]).unwrap();
    assert!(c.media.s3.is_none());
}

#[test]
fn errors_of_settings() {
    for (file, want) in [
        (
            "[media]\nurl_seconds = 59",
            "media.url_seconds is 59: must be a whole number from 60 to 604800",
        ),
        (
            "[media]\nallow_private_urls = 1",
            "media.allow_private_urls is 1: must be true or false",
        ),
        (
            "[media]\nstorage = \"gcs\"",
            r#"media.storage is "gcs": must be one of local, s3"#,
        ),
        (
            "[media]\nfolder = \"x\"",
            "media.folder is not a known key: remove it or use one of url_seconds, allow_private_urls, upload_hours, upload_bytes_per_account, storage, s3",
        ),
        (
            "[media]\ns3 = \"hunter2\"",
            "media.s3 is text (not shown): must be a table with keys",
        ),
        (
            "[media.s3]\nbucket = \"a b\"",
            r#"media.s3.bucket is "a b": must be the name of a bucket, 3 to 63 letters, digits, dots and hyphens"#,
        ),
        (
            "[media.s3]\nregion = \"\"",
            r#"media.s3.region is "": must be a region, such as "us-east-1""#,
        ),
        (
            "[media.s3]\nendpoint = \"minio:9000\"",
            r#"media.s3.endpoint is "minio:9000": must be an http or https URL, such as "https://api.example.com""#,
        ),
        (
            "[media.s3]\nprefix = \"a/../b\"",
            r#"media.s3.prefix is "a/../b": must be a path of letters, digits, dots, - and _, such as "gensvc/media""#,
        ),
        (
            "[media.s3]\nsecret_access_key = \"hunter2\"",
            "media.s3.secret_access_key is not a known key: remove it or use one of bucket, region, endpoint, virtual_hosted, prefix, access_key_id_env, secret_access_key_env, session_token_env",
        ),
        (
            "[retention]\ndays = 36501",
            "retention.days is 36501: must be a whole number from 0 to 36500",
        ),
        (
            "[jobs]\nworkers = 0",
            "jobs.workers is 0: must be a whole number from 1 to 1024",
        ),
        (
            "[defaults]\naudio = [\"elevn\"]",
            r#"defaults.audio names "elevn", which is no provider: use anthropic, elevenlabs, gemini, openai, runway, sandbox, stability"#,
        ),
    ] {
        check(file, &[], want);
    }
}

#[test]
fn errors_of_what_belongs_together() {
    let id = ("AWS_ACCESS_KEY_ID", "AKIA");
    let secret = ("AWS_SECRET_ACCESS_KEY", "hunter2");
    let own = format!("{S3}endpoint = \"http://minio.test\"\n");
    let unnamed = format!("{own}access_key_id_env = \"\"\n");
    let value = format!("{S3}secret_access_key_env = \"hunter2+/\"\n");
    for (file, pairs, want) in [
        (
            "[media]\nstorage = \"s3\"",
            &[] as &[_],
            r#"media.s3.bucket is empty: name the bucket, as media.storage is "s3""#,
        ),
        (
            S3,
            &[id],
            "media.s3.secret_access_key_env is AWS_SECRET_ACCESS_KEY, which is not set, but the key id is: set it",
        ),
        (
            S3,
            &[secret],
            "media.s3.access_key_id_env is AWS_ACCESS_KEY_ID, which is not set, but the secret is: set it",
        ),
        (
            &own,
            &[],
            "media.s3.access_key_id_env is AWS_ACCESS_KEY_ID, which is not set, and a server of your own needs keys: set it",
        ),
        (
            &unnamed,
            &[],
            "media.s3.access_key_id_env is empty, and a server of your own needs keys: name the variable",
        ),
        (
            &value,
            &[id],
            r#"media.s3.secret_access_key_env is not the name of a variable (its value is not shown): must be letters, digits and _, such as "OPENAI_API_KEY""#,
        ),
        (
            S3,
            &[id, ("AWS_SECRET_ACCESS_KEY", "hunter 2")],
            "AWS_SECRET_ACCESS_KEY holds a space or another character that no key has (its value is not shown): set it to the bare key",
        ),
    ] {
        check(file, pairs, want);
    }
}

#[test]
fn errors_name_the_variable() {
    let tables = "names a table: set one of its keys, GENSVC__MEDIA__S3__KEY with KEY = \
                  ACCESS_KEY_ID_ENV, BUCKET, ENDPOINT, PREFIX, REGION, SECRET_ACCESS_KEY_ENV, \
                  SESSION_TOKEN_ENV, VIRTUAL_HOSTED";
    for (name, value, want) in [
        (
            "GENSVC__MEDIA__S3__BUCKET",
            "x",
            r#"GENSVC__MEDIA__S3__BUCKET (media.s3.bucket) is "x": must be the name of a bucket, 3 to 63 letters, digits, dots and hyphens"#.to_owned(),
        ),
        (
            "GENSVC__MEDIA__STORAGE",
            "s3",
            r#"media.s3.bucket is empty: name the bucket, as media.storage is "s3""#.to_owned(),
        ),
        (
            "GENSVC__MEDIA__S3",
            "x",
            format!("GENSVC__MEDIA__S3 {tables}"),
        ),
        (
            "GENSVC__MEDIA__S3__KEY",
            "x",
            "GENSVC__MEDIA__S3__KEY is not a known setting: [media.s3] has access_key_id_env, bucket, endpoint, prefix, region, secret_access_key_env, session_token_env, virtual_hosted; remove it or correct the name".to_owned(),
        ),
    ] {
        check("", &[(name, value)], &want);
    }
}
