//! The job queue: videos and speech, whose state is their row. Any worker can take the next step of
//! a job without a lease.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{Result, Store, generations::NewGeneration};
use crate::domain::{
    credits::Credits,
    generation::Modality,
    ids::{AccountId, GenerationId, InstanceId},
    pricing::LIST,
    route::FallbackOn,
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
    /// The vendor's list prices; `None` if its prices were stored without them.
    pub list_prices: Option<Value>,
    /// Maximum charge: the hold, or the ceiling of the current candidate.
    pub held: Credits,
    /// Number of further candidates; `None` if it was created for only one.
    pub candidates: Option<i32>,
    /// Whether it falls back even if the provider may have started.
    pub moves_on_unknown: bool,
    pub attempts: i32,
    /// When the intent to submit was stored.
    pub submitted_at: Option<DateTime<Utc>>,
    pub remote_id: Option<String>,
    pub deadline_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
}

impl Job {
    /// Whether it can fall back.
    pub fn has_candidates(&self) -> bool {
        self.candidates > Some(0)
    }
}

impl From<&NewGeneration> for Job {
    /// Creates a job that runs in this process: nothing was submitted yet, and there is no
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
            list_prices: new.pricing.get(LIST).cloned(),
            held: new.route.as_ref().map_or(new.hold, |route| route.ceiling),
            candidates: new.route.as_ref().map(|route| route.candidates()),
            moves_on_unknown: (new.route.as_ref())
                .is_some_and(|route| route.on == FallbackOn::Unknown),
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
pub struct AccountQuota {
    /// Maximum workers of one account.
    pub most: i64,
    /// Workers in use by account.
    pub taken: Vec<(AccountId, usize)>,
}

impl AccountQuota {
    /// Whether one of the jobs just claimed used up its account's quota. Jobs of other accounts may
    /// then have been left behind it.
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
    /// any provider, but a provider's task only after a minute in which others may poll it. No
    /// account exceeds its quota. Skips rows that other claims have locked. Fewer than `limit`
    /// results do not mean that there are no more.
    pub async fn claim_jobs(
        &self,
        instance: InstanceId,
        limit: i64,
        providers: &[String],
        quota: &AccountQuota,
        now: DateTime<Utc>,
    ) -> Result<Vec<Job>> {
        let (accounts, taken): (Vec<i64>, Vec<i64>) = quota
            .taken
            .iter()
            .map(|&(account, n)| (account.0, i64::try_from(n).unwrap_or(i64::MAX)))
            .unzip();
        let at_quota = accounts
            .iter()
            .zip(&taken)
            .filter(|&(_, &n)| n >= quota.most);
        let at_quota: Vec<i64> = at_quota.map(|(&account, _)| account).collect();
        let claiming = sqlx::query_as!(
            Job,
            r#"
            with due as materialized (
                select g.id, g.account_id, g.next_step_at
                from running_generations g
                where g.lease_token is null and g.next_step_at <= $3
                  and (g.deadline_at <= $3 - case when g.remote_id is null then interval '0'
                                                  else interval '1 minute' end
                       or exists (
                      select from models m where m.id = g.model_id and m.provider = any($4)))
                  and g.account_id <> all($5)
                order by g.next_step_at limit $2
                for update skip locked
            ), ranked as (
                select due.id, due.account_id,
                       row_number() over (partition by due.account_id
                                          order by due.next_step_at, due.id)
                       + coalesce(has.workers, 0) as workers
                from due left join unnest($6::bigint[], $7::bigint[]) as has (account_id, workers)
                    on has.account_id = due.account_id
            )
            update running_generations g
            set lease_token = $1, status = 'processing', started_at = coalesce(started_at, $3)
            from ranked, models m, prices p
            where g.account_id = ranked.account_id and g.id = ranked.id and m.id = g.model_id
              and p.id = g.price_id
              and ranked.workers <= $8
            returning g.id as "id: _", g.account_id as "account_id: _", m.type as "modality: _",
                      m.provider, m.name as model, g.prompt, g.parameters,
                      p.pricing -> 'list' as list_prices,
                      coalesce((g.route ->> 'ceiling')::bigint, g.estimated) as "held!: _",
                      jsonb_array_length(g.route -> 'next') as candidates,
                      false as "moves_on_unknown!",
                      g.attempts, g.submitted_at, g.remote_id,
                      g.deadline_at, g.created_at"#,
            instance.0,
            limit,
            now,
            providers,
            &at_quota,
            &accounts,
            &taken,
            quota.most,
        )
        .fetch_all(self.jobs.named("claim jobs"));
        Ok(claiming.await?)
    }

    /// Stores the intent to submit and counts it in `attempts`. Returns `false` if this instance no
    /// longer owns the job or another step has submitted it; the caller must not submit it then.
    pub async fn intend_submission(
        &self,
        job: &Job,
        instance: InstanceId,
        attempts: i32,
        now: DateTime<Utc>,
    ) -> Result<bool> {
        let intending = sqlx::query!(
            "update running_generations set submitted_at = $3, attempts = attempts + 1
             where id = $1 and lease_token = $2 and remote_id is null and attempts = $4
               and account_id = $5",
            job.id.0,
            instance.0,
            now,
            attempts,
            job.account_id.0,
        )
        .execute(self.jobs.named("store an intent to submit"));
        Ok(intending.await?.rows_affected() == 1)
    }

    /// Stores the provider's task id. Returns `false` if this instance no longer owns the job.
    pub async fn store_task(
        &self,
        job: &Job,
        instance: InstanceId,
        remote_id: &str,
    ) -> Result<bool> {
        let storing = sqlx::query!(
            "update running_generations set remote_id = $3
             where id = $1 and lease_token = $2 and (remote_id is null or remote_id = $3)
               and account_id = $4",
            job.id.0,
            instance.0,
            remote_id,
            job.account_id.0,
        )
        .execute(self.jobs.named("store a task"));
        Ok(storing.await?.rows_affected() == 1)
    }

    /// Makes jobs due whose next step is later than `latest`. No worker sets such a time unless its
    /// clock was ahead. Returns their number.
    pub async fn hasten_jobs(&self, latest: DateTime<Utc>, now: DateTime<Utc>) -> Result<u64> {
        let hastening = sqlx::query!(
            "with far as materialized (
                 select account_id, id from running_generations
                 where lease_token is null and next_step_at > $1
                 for update skip locked)
             update running_generations g set next_step_at = $2
             from far where g.account_id = far.account_id and g.id = far.id",
            latest,
            now,
        )
        .execute(self.jobs.named("hasten jobs"));
        Ok(hastening.await?.rows_affected())
    }

    /// Releases a job's lease and sets its next step to `next`. Returns `false` if the instance no
    /// longer owned it.
    pub async fn release_job(
        &self,
        account: AccountId,
        id: GenerationId,
        instance: InstanceId,
        progress: Option<i16>,
        next: DateTime<Utc>,
    ) -> Result<bool> {
        let releasing = sqlx::query!(
            "update running_generations
             set lease_token = null, next_step_at = $4, progress = coalesce($3, progress)
             where id = $1 and lease_token = $2 and account_id = $5",
            id.0,
            instance.0,
            progress,
            next,
            account.0,
        )
        .execute(self.jobs.named("release a job"));
        Ok(releasing.await?.rows_affected() == 1)
    }
}
