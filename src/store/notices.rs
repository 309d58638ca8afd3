//! Notifications between servers by LISTEN and NOTIFY, on the channel `gensvc`. The statements that
//! change something send them. A lost notification costs only time, because waiters also poll.

use std::time::Duration;

use sqlx::{
    postgres::{PgListener, PgPoolOptions},
    raw_sql,
};
use tokio::time::timeout;
use uuid::Uuid;

use super::{
    Hosts, Result, Store,
    pool::{CONNECT_LIMIT, PROBE_LIMIT, SETTINGS, timed_out},
};
use crate::domain::ids::GenerationId;

const CHANNEL: &str = "gensvc";
/// A connection that was silent for longer is pinged: it may be dead, or lead to a standby, which
/// has no notifications.
const PROBE_AFTER: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A job was queued.
    Jobs,
    /// A job, or a text that another server was asked to end, has ended.
    Ended(GenerationId),
    /// A text that some server streams is to be ended.
    Cancel(GenerationId),
    /// Deliveries to webhooks became due.
    Deliveries,
    /// A catalogue reload was requested.
    Catalogue,
    /// The connection is new: any notification may have been missed.
    Missed,
}

/// Notifications of all servers, including this one.
#[derive(Debug)]
pub struct Notices {
    hosts: Hosts,
    listener: Option<PgListener>,
}

impl Store {
    /// Asks all servers to read their catalogues again.
    pub async fn request_catalogue_reload(&self) -> Result<()> {
        let request = sqlx::query!(
            r#"with requested as (
                   update catalogue_reloads set requested = requested + 1 returning requested
               )
               select pg_notify('gensvc', 'catalogue') from requested"#
        );
        request
            .fetch_one(self.requests.named("request catalogue reload"))
            .await?;
        Ok(())
    }

    /// Number of reload requests so far.
    pub async fn requested_catalogue_reloads(&self) -> Result<i64> {
        let reading = sqlx::query_scalar!("select requested from catalogue_reloads")
            .fetch_one(self.requests.named("read catalogue reloads"));
        Ok(reading.await?)
    }

    pub fn notices(&self) -> Notices {
        Notices {
            hosts: self.hosts.clone(),
            listener: None,
        }
    }
}

impl Notices {
    /// Waits for the next notification. Reconnects after an error.
    pub async fn next(&mut self) -> Result<Notice> {
        loop {
            let Some(listener) = &mut self.listener else {
                self.listener = Some(listen(&self.hosts).await?);
                return Ok(Notice::Missed);
            };
            match timeout(PROBE_AFTER, listener.try_recv()).await {
                Ok(Ok(Some(notification))) => match Notice::parse(notification.payload()) {
                    Some(notice) => return Ok(notice),
                    None => tracing::debug!("a notice of another version"),
                },
                Ok(Ok(None) | Err(_)) => self.listener = None,
                Err(_elapsed) => {
                    let probe = raw_sql(r#"LISTEN "gensvc""#).execute(listener);
                    if !matches!(timeout(PROBE_LIMIT, probe).await, Ok(Ok(_))) {
                        self.listener = None;
                    }
                }
            }
        }
    }
}

impl Notice {
    fn parse(payload: &str) -> Option<Self> {
        let (kind, id) = payload.split_once(' ').unwrap_or((payload, ""));
        let id = || Uuid::parse_str(id).ok().map(GenerationId);
        match kind {
            "jobs" => Some(Self::Jobs),
            "ended" => id().map(Self::Ended),
            "cancel" => id().map(Self::Cancel),
            "deliveries" => Some(Self::Deliveries),
            "catalogue" => Some(Self::Catalogue),
            _ => None,
        }
    }
}

/// A listener with its own pool, dropped together with it: a shared pool would wait for a dead
/// connection.
async fn listen(hosts: &Hosts) -> Result<PgListener, sqlx::Error> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .connect_lazy_with(hosts.last().clone());
    let listening = async {
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        raw_sql(SETTINGS).execute(&mut listener).await?;
        listener.listen(CHANNEL).await?;
        Ok(listener)
    };
    timeout(CONNECT_LIMIT, listening)
        .await
        .unwrap_or_else(|_elapsed| Err(timed_out("listen")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_of_another_version_is_none() {
        let id = Uuid::from_u128(7);
        let ended = Notice::parse(&format!("ended {id}"));
        assert_eq!(ended, Some(Notice::Ended(GenerationId(id))));
        let cancel = Notice::parse(&format!("cancel {id}"));
        assert_eq!(cancel, Some(Notice::Cancel(GenerationId(id))));
        assert_eq!(Notice::parse("jobs"), Some(Notice::Jobs));
        assert_eq!(Notice::parse("catalogue"), Some(Notice::Catalogue));
        assert_eq!(Notice::parse("deliveries"), Some(Notice::Deliveries));
        for unknown in ["", "job", "ended", "ended 7", "cancel ", "begun 7"] {
            assert_eq!(Notice::parse(unknown), None, "{unknown}");
        }
    }
}
