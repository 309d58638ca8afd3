//! Jobs: videos and speech, whose row is their state. Any worker takes the next step of any
//! job that nobody holds.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{Store, StoreError, generations::NewGeneration};
use crate::domain::{
    credits::Credits,
    generation::Modality,
    ids::{AccountId, GenerationId, InstanceId},
};

/// A generation to be advanced: a claimed row, or what its own process runs.
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
    /// When it is given up.
    pub deadline_at: Option<DateTime<Utc>>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

impl From<&NewGeneration> for Job {
    /// What its own process runs: nothing was submitted yet, and it has no deadline.
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

/// What an account may have of the workers of an instance.
#[derive(Debug, Clone)]
pub struct Share {
    /// At most.
    pub most: i64,
    /// Who has how many.
    pub taken: Vec<(AccountId, usize)>,
}

impl Share {
    /// Whether one of these jobs, just claimed, was the last that its account may have: it may
    /// have kept others from being looked at.
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
    /// Claims up to `limit` due jobs of `providers` for an instance; past their deadline, jobs
    /// of any provider. No account gets more than its share; of one that has it nothing is
    /// looked at. Others' claims are skipped, not waited for. Fewer than `limit` does not say
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

    /// A generation that was ended while a provider's task ran for it.
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

    /// Stores the intent to submit, and counts it: `attempts` is how many there were. `false`:
    /// the job is no longer this instance's, or another step of it has submitted meanwhile; it
    /// must not be submitted.
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

    /// Stores the provider's task. `false`: the job is no longer this instance's.
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

    /// Makes jobs due whose next step is set later than `latest`, which no worker sets: the clock
    /// was ahead then. Answers how many.
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

    /// Gives a job back, to be looked at again at `next`. `false`: it was no longer the
    /// instance's.
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
