//! gensvc, in a process of its own, with its default settings but for what a load needs.

use std::{
    fs::File,
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::process::{self, Guard};

/// How long a start may take.
const PATIENCE: Duration = Duration::from_mins(1);

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
        let path = folder.join(format!("{name}.log"));
        let child = Command::new(program)
            .arg("--config")
            .arg(config)
            .arg("serve")
            .env_clear()
            .env("PATH", process::path())
            .env("DATABASE_URL", database)
            .env("GENSVC_DATA_DIR", folder.join("files"))
            .env("GENSVC_BIND", "127.0.0.1:0")
            .env("GENSVC__METRICS__PORT", "0")
            // One account is to queue a thousand videos.
            .env("GENSVC__JOBS__MAX_PER_ACCOUNT", "1000000")
            .env("OPENAI_API_KEY", "sk-bench")
            .env("OPENAI_BASE_URL", format!("http://{upstream}/v1"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&path).unwrap())
            .spawn()
            .unwrap();
        let mut process = Guard::new(child);
        let begun = Instant::now();
        while !process.has_ended() && begun.elapsed() < PATIENCE {
            let log = std::fs::read_to_string(&path).unwrap_or_default();
            let said = log.split_once("listening on http://");
            if let Some((address, _)) = said.and_then(|(_, rest)| rest.split_once([' ', '\n'])) {
                let address = address.parse().unwrap();
                return Self { process, address };
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let log = std::fs::read_to_string(&path).unwrap_or_default();
        panic!("the server does not start:\n{log}");
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
