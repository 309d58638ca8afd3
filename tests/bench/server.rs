//! gensvc, in a process of its own, with its default settings but for what a load needs.

use std::{net::SocketAddr, path::Path};

use crate::process::{self, Guard};

/// The provider of the texts, as any server that imitates `OpenAI`. It has no bound of its own:
/// the callers are counted.
const PROVIDER: &str = r#"
[providers.bench]
kind = "openai_compatible"
base_url = "http://UPSTREAM/v1"
max_concurrent = 10000
[[providers.bench.models]]
id = "bench"
type = "text"
default = true
prices = { input_per_million = "10", output_per_million = "50" }
[[providers.bench.models]]
id = "bench-long"
type = "text"
prices = { input_per_million = "10", output_per_million = "50" }
[[providers.bench.models]]
id = "bench-held"
type = "text"
prices = { input_per_million = "10", output_per_million = "50" }
[providers.bench-anthropic]
kind = "anthropic"
base_url = "http://UPSTREAM"
api_key_env = "OPENAI_API_KEY"
max_concurrent = 10000
[[providers.bench-anthropic.models]]
id = "bench"
type = "text"
default = true
prices = { input_per_million = "10", output_per_million = "50" }
[[providers.bench-anthropic.models]]
id = "bench-held"
type = "text"
prices = { input_per_million = "10", output_per_million = "50" }
"#;

pub struct Server {
    process: Guard,
    address: SocketAddr,
}

impl Server {
    /// One on that database; `name` is its log's.
    pub async fn start(
        program: &Path,
        folder: &Path,
        name: &str,
        database: &str,
        upstream: SocketAddr,
    ) -> Self {
        let config = folder.join("bench.toml");
        let provider = PROVIDER.replace("UPSTREAM", &upstream.to_string());
        std::fs::write(&config, provider).unwrap();
        let mut command = process::command(program);
        command
            .arg("--config")
            .arg(config)
            .env("DATABASE_URL", database)
            .env("GENSVC_DATA_DIR", folder.join("files"))
            .env("GENSVC_BIND", "127.0.0.1:0")
            .env("GENSVC__METRICS__PORT", "0")
            // One account is to queue a thousand videos.
            .env("GENSVC__JOBS__MAX_PER_ACCOUNT", "1000000")
            .env("OPENAI_API_KEY", "sk-bench")
            .env("OPENAI_BASE_URL", format!("http://{upstream}/v1"));
        let log = folder.join(format!("{name}.log"));
        match process::serve(command, &log).await {
            Ok((process, address)) => Self { process, address },
            Err(log) => panic!("the server does not start:\n{log}"),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub async fn stop(self) {
        self.process.stop().await;
    }
}
