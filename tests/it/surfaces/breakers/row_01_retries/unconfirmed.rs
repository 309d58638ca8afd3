//! Holds that are committed while the database's answer is lost.

use http::Method;
use sqlx::{Connection as _, PgConnection};

use super::*;
use crate::{database::proxy::Proxy, surfaces::media};

/// Lets the statements that create generations wait.
struct Gate(PgConnection);

impl Gate {
    async fn new(options: &PgConnectOptions) -> Self {
        let mut connection = PgConnection::connect_with(options).await.unwrap();
        let closed = "
            create table gate (is_open boolean);
            create function wait() returns trigger language plpgsql as $$ begin
                while not exists (select from gate) loop perform pg_sleep(0.01); end loop;
                return new;
            end $$;
            create trigger wait before insert on running_generations
                for each row execute function wait();";
        sqlx::raw_sql(closed)
            .execute(&mut connection)
            .await
            .unwrap();
        Self(connection)
    }

    async fn close(&mut self) {
        sqlx::raw_sql("delete from gate")
            .execute(&mut self.0)
            .await
            .unwrap();
    }

    /// Waits until a statement waits.
    async fn arrived(&mut self) {
        let waiting = "select exists (select from pg_stat_activity
            where datname = current_database() and wait_event = 'PgSleep')";
        while !sqlx::query_scalar::<_, bool>(waiting)
            .fetch_one(&mut self.0)
            .await
            .unwrap()
        {}
    }

    /// Lets it be carried out, and waits until its row is there.
    async fn open(&mut self) {
        sqlx::raw_sql("insert into gate values (true)")
            .execute(&mut self.0)
            .await
            .unwrap();
        let running = "select exists (select from running_generations)";
        while !sqlx::query_scalar::<_, bool>(running)
            .fetch_one(&mut self.0)
            .await
            .unwrap()
        {}
    }
}

async fn server(options: PgConnectOptions) -> Arc<TestApp> {
    let env = [("GENSVC__DATABASE__ACQUIRE_TIMEOUT_MS", "5000")];
    Arc::new(TestApp::with(options, &env).await)
}

/// The answer, the database's connections lost while the hold is under way.
async fn cut(
    app: &Arc<TestApp>,
    proxy: &Proxy,
    gate: &mut Gate,
    request: JoinHandle<Answer>,
) -> Answer {
    gate.arrived().await;
    proxy.silence();
    gate.open().await;
    let answer = request.await.unwrap();
    proxy.switch();
    while app.get("", "/health").await.status != 200 {}
    answer
}

#[sqlx::test]
async fn a_retry_finds_a_hold_whose_answer_was_lost(_: PgPoolOptions, options: PgConnectOptions) {
    let proxy = Proxy::start(&options);
    let app = server(proxy.over(options.clone())).await;
    let direct = server(options.clone()).await;
    let mut gate = Gate::new(&options).await;
    for (path, body) in [
        (CHAT, ask(MODELS[0], "x")),
        (media::SPEECH, media::speech(&json!({}))),
    ] {
        for server in [&app, &direct] {
            let account = direct.account("100").await;
            gate.close().await;
            let first = trying(&app, &account, path, "0", &body);
            let failed = cut(&app, &proxy, &mut gate, first).await;
            error(path, &failed, 503, "database_unavailable");
            assert_eq!(failed.header("x-should-retry"), "true");
            let uuid = failed.header("x-gensvc-generation").to_owned();
            assert_eq!(failed.json()["error"]["generation"], uuid);
            for server in [&app, &direct] {
                server.advance(TimeDelta::seconds(1));
            }
            let retry = tried(server, &account.key, path, "1", &body);
            let answer = server.working(retry).await;
            assert_eq!(answer.status, 200, "{path} {}", answer.text);
            assert_eq!(answer.header("x-gensvc-generation"), uuid);
            assert_eq!(made(&direct, &account).await, [uuid]);
        }
    }
    app.idle().await;
    direct.assert_settled().await;
}

#[sqlx::test]
async fn an_unconfirmed_request_names_its_generation(_: PgPoolOptions, options: PgConnectOptions) {
    let proxy = Proxy::start(&options);
    let app = server(proxy.over(options.clone())).await;
    let direct = server(options.clone()).await;
    let mut gate = Gate::new(&options).await;
    let prefer: &[_] = &[("prefer", "respond-async")];
    for (path, headers, body) in [
        ("/v1/generate/video", &[][..], json!({"prompt": "x"})),
        ("/v1/generate/audio", &[], json!({"prompt": "x"})),
        ("/v1/generate/text", prefer, json!({"prompt": "x"})),
        ("/v1/generate/text", &[], json!({"prompt": "x"})),
        ("/v1/generate/image", &[], json!({"prompt": "x"})),
    ] {
        let account = direct.account("1000").await;
        gate.close().await;
        let request = app.spawn_post(&account.key, path, headers, body);
        let failed = cut(&app, &proxy, &mut gate, request).await;
        failed.error(503, "database_unavailable");
        let uuid = failed.json()["generation"]["uuid"].clone();
        assert_eq!(failed.header("x-gensvc-generation"), uuid);
        let lookup = format!("/v1/generate/{}", uuid.as_str().unwrap());
        let found = direct.call(Method::GET, &account.key, &lookup, &[], None);
        assert_eq!(found.await.expect(200)["uuid"], uuid);
        assert_eq!(made(&direct, &account).await.len(), 1);
    }
}
