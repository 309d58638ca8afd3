//! Prompt templates and their versions.

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Result, Store, exactly_one};
use crate::{
    domain::{
        clock::rfc3339,
        ids::{AccountId, TemplateId},
        page::{Page, PageRequest},
    },
    request::TemplateText,
};

/// Prefix of the template list's cursors.
pub const TEMPLATES_CURSOR: u8 = b't';

/// A prompt template.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = TemplateBody)]
pub struct TemplateRecord {
    /// Its id.
    pub id: TemplateId,
    /// Its label.
    pub name: String,
    /// Counts from 1; each replacement adds 1.
    pub version: i32,
    /// The template of the prompt.
    pub prompt: String,
    /// The template of the system prompt.
    #[schema(required, nullable)]
    pub system_prompt: Option<String>,
    /// The names that the two templates read, except `prompt`, sorted. Each must be given in
    /// `template_variables` unless the template reads it with `default` or `is defined`.
    pub variables: Vec<String>,
    /// When the template was created.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
    /// When this version was created.
    #[serde(serialize_with = "rfc3339")]
    pub updated_at: DateTime<Utc>,
}

/// Maximum templates per account.
pub const MAX_TEMPLATES: i64 = 1_000;
/// Maximum versions per template; older ones are removed.
const KEPT_VERSIONS: i32 = 100;

impl Store {
    /// Stores a template and its first version in one statement. `form` is the unique digest of the
    /// form that creates it. Returns `None` if the account has [`MAX_TEMPLATES`] already; parallel
    /// requests may create a few more.
    pub async fn create_template(
        &self,
        account: AccountId,
        text: &TemplateText,
        form: Option<&[u8]>,
        now: DateTime<Utc>,
    ) -> Result<Option<TemplateRecord>> {
        let reading = sqlx::query_as!(
            TemplateRecord,
            r#"
            with template as (
                insert into templates (account_id, name, version, created_at, updated_at)
                select $1, $2, 1, $6, $6
                where (select count(*) from templates where account_id = $1) < $7
                returning id, name, version, created_at, updated_at
            ), written as (
                insert into template_versions
                    (template_id, version, prompt, system_prompt, variables, created_at, form_digest)
                select id, version, $3, $4, $5, $6, $8 from template
                returning prompt, system_prompt, variables
            )
            select id as "id!: _", name as "name!", version as "version!", prompt as "prompt!",
                   system_prompt, variables as "variables!", created_at as "created_at!",
                   updated_at as "updated_at!"
            from template, written
            "#,
            account.0,
            text.name,
            text.prompt,
            text.system_prompt,
            &text.variables,
            now,
            MAX_TEMPLATES,
            form,
        )
        .fetch_optional(self.requests.named("create a template"));
        Ok(reading.await?)
    }

    /// Replaces a template by its next version in one statement. The update locks the template's
    /// row, so concurrent replacements get different versions.
    pub async fn replace_template(
        &self,
        account: AccountId,
        id: TemplateId,
        text: &TemplateText,
        form: Option<&[u8]>,
        now: DateTime<Utc>,
    ) -> Result<Option<TemplateRecord>> {
        let reading = sqlx::query_as!(
            TemplateRecord,
            r#"
            with template as (
                update templates
                set name = $3, version = version + 1, updated_at = greatest(updated_at, $7)
                where account_id = $1 and id = $2
                returning id, name, version, created_at, updated_at
            ), written as (
                insert into template_versions
                    (template_id, version, prompt, system_prompt, variables, created_at, form_digest)
                select id, version, $4, $5, $6, updated_at, $9 from template
                returning prompt, system_prompt, variables
            ), outdated as (
                delete from template_versions v using template t
                where v.template_id = t.id and v.version <= t.version - $8
            )
            select id as "id!: _", name as "name!", version as "version!", prompt as "prompt!",
                   system_prompt, variables as "variables!", created_at as "created_at!",
                   updated_at as "updated_at!"
            from template, written
            "#,
            account.0,
            id.0,
            text.name,
            text.prompt,
            text.system_prompt,
            &text.variables,
            now,
            KEPT_VERSIONS,
            form,
        )
        .fetch_optional(self.requests.named("replace a template"));
        Ok(reading.await?)
    }

    /// Finds the template version created by the form with this digest.
    pub async fn template_of_form(
        &self,
        account: AccountId,
        form: &[u8],
    ) -> Result<Option<TemplateId>> {
        let reading = sqlx::query_scalar!(
            r#"select t.id as "id: TemplateId"
               from template_versions v join templates t on t.id = v.template_id
               where t.account_id = $1 and v.form_digest = $2"#,
            account.0,
            form,
        );
        let reading = reading.fetch_optional(self.requests.named("find a template by a form"));
        Ok(reading.await?)
    }

    pub async fn template(
        &self,
        account: AccountId,
        id: TemplateId,
    ) -> Result<Option<TemplateRecord>> {
        let reading = sqlx::query_as!(
            TemplateRecord,
            r#"select t.id as "id: _", t.name, t.version, v.prompt, v.system_prompt, v.variables,
                    t.created_at, t.updated_at
             from templates t
             join template_versions v on v.template_id = t.id and v.version = t.version
             where t.account_id = $1 and t.id = $2"#,
            account.0,
            id.0,
        )
        .fetch_optional(self.requests.named("read a template"));
        Ok(reading.await?)
    }

    /// Returns the account's templates, newest first.
    pub async fn templates(
        &self,
        account: AccountId,
        page: &PageRequest,
    ) -> Result<Page<TemplateRecord>> {
        let rows = sqlx::query_as!(
            TemplateRecord,
            r#"select t.id as "id: _", t.name, t.version, v.prompt, v.system_prompt, v.variables,
                    t.created_at, t.updated_at
             from templates t
             join template_versions v on v.template_id = t.id and v.version = t.version
             where t.account_id = $1 and ($2::bigint is null or t.id < $2)
             order by t.id desc limit $3"#,
            account.0,
            page.after_number(),
            page.per_page + 1,
        )
        .fetch_all(self.requests.named("list templates").long())
        .await?;
        Ok(page.numbered(TEMPLATES_CURSOR, rows, |row| row.id.0))
    }

    /// Deletes a template and its versions. Returns `false` if not found. Records of generations
    /// keep its id.
    pub async fn delete_template(&self, account: AccountId, id: TemplateId) -> Result<bool> {
        let done = sqlx::query!(
            "delete from templates where account_id = $1 and id = $2",
            account.0,
            id.0,
        )
        .execute(self.requests.named("delete a template"))
        .await?;
        match done.rows_affected() {
            0 => Ok(false),
            rows => exactly_one("deleting a template", rows).map(|()| true),
        }
    }
}
