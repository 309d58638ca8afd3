//! The job queue: videos and speech, whose state is their row. Any worker can take the next step of
//! a job without a lease.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{Store, StoreError, generations::NewGeneration};
use crate::domain::{
    credits::Credits,
    generation::Modality,
    ids::{AccountId, GenerationId, InstanceId},
};

/// A generation to advance: a claimed row, or one that runs in the process that created it.
#[derive(Debug, Clone)]
pub struct Job {
    pub id: GenerationId,
    pub account_id: AccountId,
    pub modality: Modality,
    pub provider: String,
    pub model: String,
    pub prompt: String,
    pub parameters: Value,
    pub held: Credits,
    pub attempts: i32,
    /// When the intent to submit was stored.
    pub submitted_at: Option<DateTime<Utc>>,
    pub remote_id: Option<String>,
    pub deadline_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
}

impl From<&NewGeneration> for Job {
    /// For what runs in the process that created it: nothing was submitted yet, and there is no
    /// deadline.
    fn from(new: &NewGeneration) -> Self {
        Self {
            id: new.id,
            account_id: new.account_id,
            modality: new.modality,
            provider: new.provider.clone(),
            model: new.model.clone(),
            prompt: new.prompt.clone(),
            parameters: new.parameters.clone(),
            held: new.hold,
            attempts: 0,
            submitted_at: None,
            remote_id: None,
            deadline_at: new.deadline,
            created_at: new.now,
        }
    }
}

/// Quota of an account on an instance's workers.
#[derive(Debug, Clone)]
pub struct Share {
    /// Maximum workers of one account.
    pub most: i64,
    /// Workers in use by account.
    pub taken: Vec<(AccountId, usize)>,
}

impl Share {
    /// Whether one of the jobs just claimed used up its account's quota: jobs of other accounts may
    /// have been left behind it.
    pub fn is_filled_by(&self, jobs: &[Job]) -> bool {
        jobs.iter().any(|job| {
            let new = jobs
                .iter()
                .filter(|other| other.account_id == job.account_id);
            let had = self.taken.iter().find(|(id, _)| *id == job.account_id);
            let workers = new.count() + had.map_or(0, |&(_, n)| n);
            i64::try_from(workers).is_ok_and(|n| n >= self.most)
        })
    }
}

impl Store {
    /// Claims up to `limit` due jobs of `providers` for an instance; past their deadline, jobs of
    /// any provider. No account exceeds its quota, and accounts at their quota are skipped. Rows
    /// locked by other claims are skipped, not waited for. Fewer than `limit` results do not mean
    /// that there are no more.
    pub async fn claim_jobs(
        &self,
        instance: InstanceId,
        limit: i64,
        providers: &[String],
        share: &Share,
        now: DateTime<Utc>,
    ) -> Result<Vec<Job>, StoreError> {
        let (accounts, taken): (Vec<i64>, Vec<i64>) = share
            .taken
            .iter()
            .map(|&(account, n)| (account.0, i64::try_from(n).unwrap_or(i64::MAX)))
            .unzip();
        let at_quota = accounts
            .iter()
            .zip(&taken)
            .filter(|&(_, &n)| n >= share.most);
        let at_quota: Vec<i64> = at_quota.map(|(&account, _)| account).collect();
        let claiming = sqlx::query_as!(
            Job,
            r#"update generations
             set lease_token = $1, status = 'processing', started_at = coalesce(started_at, $3)
             where id = any(array(
                 select ranked.id
                 from (
                     select due.id, due.account_id,
                            row_number() over (partition by due.account_id
                                               order by due.next_step_at, due.id) as place
                     from (
                         select id, account_id, next_step_at from generations
                         where status in ('pending', 'processing') and lease_token is null
                           and next_step_at <= $3 and (provider = any($4) or deadline_at <= $3)
                           and account_id <> all($5)
                         order by next_step_at limit $2
                         for update skip locked
                     ) due
                 ) ranked
                 left join unnest($6::bigint[], $7::bigint[]) as has(account_id, workers)
                     on has.account_id = ranked.account_id
                 where ranked.place + coalesce(has.workers, 0) <= $8
             ))
             returning id as "id: _", account_id as "account_id: _", type as "modality: _",
                       provider, model, prompt, parameters, estimated as "held: _", attempts,
                       submitted_at, remote_id, deadline_at, created_at"#,
            instance.0,
            limit,
            now,
            providers,
            &at_quota,
            &accounts,
            &taken,
            share.most,
        )
        .fetch_all(self.reserved.named("claim jobs"));
        Ok(claiming.await?)
    }

    /// A generation that was ended while a provider's task was running for it.
    pub async fn cancelled_job(&self, id: GenerationId) -> Result<Option<Job>, StoreError> {
        let reading = sqlx::query_as!(
            Job,
            r#"select id as "id: _", account_id as "account_id: _", type as "modality: _",
                      provider, model, prompt, parameters, estimated as "held: _", attempts,
                      submitted_at, remote_id, deadline_at, created_at
             from generations where id = $1 and status = 'failed' and remote_id is not null"#,
            id.0
        )
        .fetch_optional(self.requests.named("read a cancelled job"));
        Ok(reading.await?)
    }

    /// Stores the intent to submit and counts it in `attempts`. `false`: this instance no longer
    /// owns the job, or another step of it has submitted meanwhile; it must not be submitted.
    pub async fn intend_submission(
        &self,
        id: GenerationId,
        instance: InstanceId,
        attempts: i32,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let intending = sqlx::query!(
            "update generations set submitted_at = $3, attempts = attempts + 1
             where id = $1 and lease_token = $2 and remote_id is null and attempts = $4
               and status in ('pending', 'processing')",
            id.0,
            instance.0,
            now,
            attempts,
        )
        .execute(self.reserved.named("store an intent to submit"));
        Ok(intending.await?.rows_affected() == 1)
    }

    /// Stores the provider's task id. `false`: this instance no longer owns the job.
    pub async fn store_task(
        &self,
        id: GenerationId,
        instance: InstanceId,
        remote_id: &str,
    ) -> Result<bool, StoreError> {
        let storing = sqlx::query!(
            "update generations set remote_id = $3
             where id = $1 and lease_token = $2 and status in ('pending', 'processing')
               and (remote_id is null or remote_id = $3)",
            id.0,
            instance.0,
            remote_id,
        )
        .execute(self.reserved.named("store a task"));
        Ok(storing.await?.rows_affected() == 1)
    }

    /// Makes jobs due whose next step is later than `latest`, which no worker sets: the clock was
    /// ahead then. Returns how many.
    pub async fn hasten_jobs(
        &self,
        latest: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<u64, StoreError> {
        let hastening = sqlx::query!(
            "update generations set next_step_at = $2
             where id = any(array(
                 select id from generations
                 where status in ('pending', 'processing') and lease_token is null
                   and next_step_at > $1
                 for update skip locked))",
            latest,
            now,
        )
        .execute(self.reserved.named("hasten jobs"));
        Ok(hastening.await?.rows_affected())
    }

    /// Releases a job's lease, with its next step at `next`. `false`: the instance no longer owned
    /// it.
    pub async fn release_job(
        &self,
        id: GenerationId,
        instance: InstanceId,
        progress: Option<i16>,
        next: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let releasing = sqlx::query!(
            "update generations
             set lease_token = null, next_step_at = $4, progress = coalesce($3, progress)
             where id = $1 and lease_token = $2 and status in ('pending', 'processing')",
            id.0,
            instance.0,
            progress,
            next,
        )
        .execute(self.reserved.named("release a job"));
        Ok(releasing.await?.rows_affected() == 1)
    }
}
