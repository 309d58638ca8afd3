//! The history: a keyset-paginated list of an account's generations.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{Postgres, QueryBuilder};
use uuid::{Builder, Uuid};

use super::{Result, Store, generations::GenerationRow};
use crate::domain::{
    generation::{Generation, Modality, REQUEST_ID, Status},
    ids::{AccountId, ApiKeyId},
    page::{Cursor, Page, PageRequest},
};

/// Resolution of the times in ids.
const MILLISECOND: TimeDelta = TimeDelta::milliseconds(1);

/// Maximum generations that a page searches for a text or an id. Indexes would slow settlements.
const SEARCHED_ROWS: i64 = 10_000;
/// Maximum characters of a prompt that are searched, so that long prompts are not read whole.
const SEARCHED_CHARS: i32 = 2_000;

#[derive(Debug, Clone, Default)]
pub struct HistoryFilter {
    pub modality: Option<Modality>,
    pub status: Option<Status>,
    pub provider: Option<String>,
    pub model: Option<String>,
    pub caller: Option<CallerFilter>,
    pub created_after: Option<DateTime<Utc>>,
    pub created_before: Option<DateTime<Utc>>,
    /// Text that the prompt contains, compared without case.
    pub prompt: Option<String>,
    /// The id of the request that created the generation.
    pub request_id: Option<String>,
    /// The provider's request id of any attempt, also one before a fallback.
    pub provider_request_id: Option<String>,
}

/// The caller that requested the generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerFilter {
    Key(ApiKeyId),
    /// A logged-in user.
    Session,
}

impl HistoryFilter {
    /// Returns whether running and whether finished generations match.
    fn wants(&self) -> (bool, bool) {
        let finished = self.status.map(Status::is_finished);
        (finished != Some(true), finished != Some(false))
    }

    /// Whether a page may read many more rows than it returns.
    pub fn is_search(&self) -> bool {
        self.needs_scan() || self.caller.is_some()
    }

    /// Whether it has a condition that is checked row by row, on a bounded number of rows.
    fn needs_scan(&self) -> bool {
        self.prompt.is_some() || self.request_id.is_some() || self.provider_request_id.is_some()
    }
}

impl Store {
    /// Returns the account's generations, newest first. Prompt and result are cut to 200
    /// characters; parameters and pricing are left out.
    pub async fn history(
        &self,
        account: AccountId,
        filter: &HistoryFilter,
        page: &PageRequest,
    ) -> Result<Page<Generation>> {
        let (running, finished) = filter.wants();
        let mut query = QueryBuilder::new("with recursive ");
        push_wanted(&mut query, filter);
        if finished && filter.caller.is_none() && !filter.needs_scan() {
            push_kinds(&mut query, account, filter);
        }
        query.push(", found as (");
        match filter.caller {
            _ if !finished => {}
            _ if filter.needs_scan() => push_searched(&mut query, account, filter, page),
            Some(caller) => push_finished_of(caller, &mut query, account, filter, page),
            None => push_finished(&mut query, account, filter, page),
        }
        if running && finished {
            query.push(" union all ");
        }
        if running {
            query.push(
                "(select id from (select id, model_id from running_generations where account_id = ",
            );
            query.push_bind(account.0);
            if let Some(status) = filter.status {
                query.push(" and status = ").push_bind(status.as_str());
            }
            push_unindexed(&mut query, filter, "remote_id");
            push_span(&mut query, filter, page);
            // Few are running. A plan ordered by id could read dead rows of all accounts.
            query.push(" offset 0) running where model_id in (select id from wanted) ");
            query.push("order by id desc limit ");
            query.push_bind(page.per_page + 1).push(")");
        }
        query.push(
            ") select g.id, account_id, type, status, provider, model, left(prompt, 200) as prompt, \
             'null'::jsonb as parameters, 'null'::jsonb as pricing, api_key_id, estimated, charged, \
             usage, case type when 'text' then left(result, 200) else result end as result, \
             error_code, error_message, attempts, provider_request_id, created_at, started_at, \
             completed_at, outputs, progress, \
             coalesce(finish_reason, stop_reason) as finish_reason, template_id, template_version, \
             surface, null::jsonb as answer, joined, null::jsonb as route \
             from found cross join lateral (\
                 select * from generations g where g.id = found.id and g.account_id = ",
        );
        // One lookup per row; otherwise the planner would read all generations of the account.
        query
            .push_bind(account.0)
            .push(" offset 0) g order by g.id desc limit ")
            .push_bind(page.per_page + 1);
        let rows: Vec<GenerationRow> = query
            .build_query_as()
            .fetch_all(self.requests.named("list generations").long())
            .await?;
        let rows = rows.into_iter().map(Generation::from).collect();
        let mut found = Page::from_surplus(rows, page.per_page, |g: &Generation| {
            Cursor::Generation(g.id.0)
        });
        if finished
            && filter.needs_scan()
            && let Some(last) = self.searched_until(account, filter, page).await?
            && (found.next.is_none() || found.rows.last().is_some_and(|g| g.id.0 < last))
        {
            // Older running ones belong to a later page.
            found.rows.retain(|g| g.id.0 >= last);
            found.next = Some(Cursor::Generation(last));
        }
        Ok(found)
    }

    /// Returns the last generation that a page of a search has read; `None` if it has read all.
    async fn searched_until(
        &self,
        account: AccountId,
        filter: &HistoryFilter,
        page: &PageRequest,
    ) -> Result<Option<Uuid>> {
        let mut query =
            QueryBuilder::new("select id from finished_generations where account_id = ");
        query.push_bind(account.0);
        push_span(&mut query, filter, page);
        query.push(" order by id desc limit 1 offset ");
        query.push_bind(SEARCHED_ROWS - 1);
        let last = query
            .build_query_scalar()
            .fetch_optional(self.requests.named("continue a search").long());
        Ok(last.await?)
    }
}

/// Adds the newest finished generations with a text or an id, among the account's next ones.
fn push_searched(
    query: &mut QueryBuilder<Postgres>,
    account: AccountId,
    filter: &HistoryFilter,
    page: &PageRequest,
) {
    query.push("(select id from (select * from finished_generations where account_id = ");
    query.push_bind(account.0);
    push_span(query, filter, page);
    query.push(" order by id desc limit ");
    query.push_bind(SEARCHED_ROWS);
    query.push(") next where deleted_at is null and model_id in (select id from wanted)");
    if let Some(status) = filter.status {
        query
            .push(" and failed = ")
            .push_bind(status == Status::Failed);
    }
    push_unindexed(query, filter, "provider_request_id");
    query.push(" order by id desc limit ");
    query.push_bind(page.per_page + 1).push(")");
}

/// Adds conditions that no index of finished generations has, for the given column of provider ids.
fn push_unindexed(
    query: &mut QueryBuilder<Postgres>,
    filter: &HistoryFilter,
    provider_id: &'static str,
) {
    match filter.caller {
        Some(CallerFilter::Key(id)) => {
            query.push(" and api_key_id = ").push_bind(id.0);
        }
        Some(CallerFilter::Session) => {
            query.push(" and api_key_id is null");
        }
        None => {}
    }
    if let Some(text) = &filter.prompt {
        query.push(" and left(prompt, ").push_bind(SEARCHED_CHARS);
        query.push(") ~ ").push_bind(any_case(text));
    }
    if let Some(id) = &filter.request_id {
        query.push(" and parameters ->> ").push_bind(REQUEST_ID);
        query.push(" = ").push_bind(id.clone());
    }
    if let Some(request) = &filter.provider_request_id {
        query.push(" and (").push(provider_id).push(" = ");
        query.push_bind(request.clone());
        // One lookup per row with several candidates; otherwise the planner could read the attempts
        // of all accounts.
        query.push(
            " or route is not null and exists (select from generation_attempts a \
             where a.generation_id = id and a.provider_request_id = ",
        );
        query.push_bind(request.clone()).push(" offset 0))");
    }
}

/// Builds a regular expression that matches a text without case. `ilike` and `lower` know only
/// ASCII letters in a database with the locale C.
fn any_case(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        if c.is_alphabetic() {
            pattern.push('[');
            pattern.push(c);
            pattern.extend(c.to_lowercase().chain(c.to_uppercase()));
            pattern.push(']');
        } else {
            pattern.extend((!c.is_alphanumeric()).then_some('\\'));
            pattern.push(c);
        }
    }
    pattern
}

/// Adds the newest finished generations of all kinds.
fn push_finished(
    query: &mut QueryBuilder<Postgres>,
    account: AccountId,
    filter: &HistoryFilter,
    page: &PageRequest,
) {
    query.push(
        "(select newest.id from kinds cross join lateral (\
         select id from finished_generations \
         where (model_id, failed) >= (kinds.model_id, kinds.failed) \
         and (model_id, failed) <= (kinds.model_id, kinds.failed) \
         and deleted_at is null and account_id = ",
    );
    query.push_bind(account.0);
    push_span(query, filter, page);
    // Only the index of the history has this order. Ordered by id, a plan could read all
    // generations of the account to find a rare kind.
    query.push(" order by model_id desc, failed desc, id desc limit ");
    query.push_bind(page.per_page + 1);
    query.push(") newest order by id desc limit ");
    query.push_bind(page.per_page + 1).push(")");
}

/// Adds the newest finished generations of one caller, whether or not they are in the sums.
fn push_finished_of(
    caller: CallerFilter,
    query: &mut QueryBuilder<Postgres>,
    account: AccountId,
    filter: &HistoryFilter,
    page: &PageRequest,
) {
    // Matches the ids in the sums.
    let caller = match caller {
        CallerFilter::Key(id) => id.0,
        CallerFilter::Session => 0,
    };
    let failed = filter.status.map(|status| status == Status::Failed);
    let before = page.after_generation();
    let since = filter.created_after.unwrap_or(DateTime::UNIX_EPOCH);
    // The previous page ended within this millisecond.
    let reached = before.and_then(|id| id.get_timestamp()).and_then(|at| {
        let (seconds, nanos) = at.to_unix();
        DateTime::from_timestamp(seconds.cast_signed(), nanos)?.checked_add_signed(MILLISECOND)
    });
    let ends = [filter.created_before, reached];
    let until = ends.into_iter().flatten().min();
    query.push("(select id from finished_of_caller(");
    query.push_bind(account.0).push(", ").push_bind(caller);
    query.push(", array(select id from wanted), ");
    query.push_bind(failed).push(", ").push_bind(since);
    query.push(", coalesce(").push_bind(until);
    query.push(", 'infinity'), ").push_bind(before).push(", ");
    query.push_bind(i32::try_from(page.per_page + 1).unwrap_or(i32::MAX));
    query.push(") counted (id) union select id from usage_tail(");
    query.push_bind(account.0);
    query.push(") where deleted_at is null and model_id in (select id from wanted)");
    query
        .push(" and coalesce(api_key_id, 0) = ")
        .push_bind(caller);
    if let Some(failed) = failed {
        query.push(" and failed = ").push_bind(failed);
    }
    push_span(query, filter, page);
    query.push(" order by id desc limit ");
    query.push_bind(page.per_page + 1).push(")");
}

/// Adds the models that match the filters.
fn push_wanted(query: &mut QueryBuilder<Postgres>, filter: &HistoryFilter) {
    query.push("wanted as (select id from models where true");
    if let Some(modality) = filter.modality {
        query.push(" and type = ").push_bind(modality.as_str());
    }
    if let Some(provider) = &filter.provider {
        query.push(" and provider = ").push_bind(provider.clone());
    }
    if let Some(model) = &filter.model {
        query.push(" and name = ").push_bind(model.clone());
    }
    query.push(")");
}

/// Adds the pairs of model and outcome among the account's finished generations with these models.
/// Uses one index lookup each (a loose index scan), whatever the number of rows.
fn push_kinds(query: &mut QueryBuilder<Postgres>, account: AccountId, filter: &HistoryFilter) {
    let next = |query: &mut QueryBuilder<Postgres>, after: &str| {
        query.push(
            "(select model_id, failed from finished_generations \
             where deleted_at is null and account_id = ",
        );
        query.push_bind(account.0);
        query.push(after);
        query.push(" order by model_id, failed limit 1)");
    };
    query.push(", every (model_id, failed) as (");
    next(query, "");
    query.push(" union all select next.* from every cross join lateral ");
    next(
        query,
        " and (model_id, failed) > (every.model_id, every.failed)",
    );
    query.push(" next), kinds as (select * from every where model_id in (select id from wanted)");
    if let Some(status) = filter.status {
        query
            .push(" and failed = ")
            .push_bind(status == Status::Failed);
    }
    query.push(")");
}

/// Adds the time range and the start of the page. An id contains its creation time in milliseconds,
/// so a range of times is a range of ids, by which indexes are sorted; exact times are compared at
/// its ends.
fn push_span(query: &mut QueryBuilder<Postgres>, filter: &HistoryFilter, page: &PageRequest) {
    if let Some(after) = filter.created_after {
        query.push(" and id >= ").push_bind(lowest_id(after));
        query.push(" and created_at >= ").push_bind(after);
    }
    if let Some(before) = filter.created_before {
        let end = lowest_id(before.checked_add_signed(MILLISECOND).unwrap_or(before));
        query.push(" and id < ").push_bind(end);
        query.push(" and created_at < ").push_bind(before);
    }
    if let Some(after) = page.after_generation() {
        query.push(" and id < ").push_bind(after);
    }
}

/// Returns the lowest version 7 UUID of a time's millisecond.
pub(super) fn lowest_id(time: DateTime<Utc>) -> Uuid {
    let millis = u64::try_from(time.timestamp_millis()).unwrap_or(0);
    Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::GenerationIds;

    #[test]
    fn ids_of_a_millisecond_lie_between_the_lowest_of_it_and_of_the_next() {
        let time = DateTime::from_timestamp_millis(1_790_000_000_123).unwrap();
        let id = GenerationIds::default().next(time).0;
        assert!(lowest_id(time) <= id);
        assert!(id < lowest_id(time + TimeDelta::milliseconds(1)));
    }
}
