//! Prompt templates: list, editor with preview, delete.

use std::collections::BTreeSet;

use axum::{
    extract::Path,
    response::{IntoResponse as _, Redirect, Response},
};
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::{
    form::Form,
    once, operations as op,
    parts::{self, field, list as rows_of, text},
    problem::Problem,
    session::Session,
    shell,
    table::{self, Column, file},
};

pub async fn list(session: Session) -> Result<Markup, Problem> {
    let found = session.list(op::TEMPLATES).await?;
    let rows = rows_of(&found["data"]);
    let new = html! { a.button.primary href="/templates/new" { "New template" } };
    let actions = html! { (parts::download("/templates.csv", rows)) (new) };
    let about = "A template keeps a prompt in one place, so that programs send the values only.";
    let none = parts::empty("No templates yet", about, &new);
    let content = html! {
        (shell::head("Templates", "Prompts with places for values, kept here and used by their id.", &actions))
        section.card { (table::list_or(&none, &columns(), rows)) }
        (parts::pager(&session.path, &found["next_cursor"]))
    };
    Ok(shell::page(&session, "Templates", &content))
}

pub async fn csv(session: Session) -> Result<Response, Problem> {
    table::download_list("templates", columns(), session, |session| {
        session.long_pages(op::TEMPLATES)
    })
    .await
}

fn columns() -> Vec<Column<'static>> {
    let name = |row: &Value| html! { a href={ "/templates/" (row["id"].to_string()) } { (text(&row["name"])) } };
    vec![
        table::row("name", "Name", name),
        table::amount("id", "Id").class("right narrow-hidden"),
        table::amount("version", "Version").class("right narrow-hidden"),
        table::words("variables", "Variables").class("cut"),
        file("prompt"),
        file("system_prompt"),
        file("created_at"),
        table::time("updated_at", "Changed"),
    ]
}

pub async fn new(session: Session) -> Markup {
    editor(&session, &Form::default(), None, None, None)
}

pub async fn page(session: Session, Path(id): Path<String>) -> Result<Markup, Problem> {
    let template = session.get(op::TEMPLATE, &[&id]).await?;
    let mut form = Form::default();
    for name in ["name", "prompt", "system_prompt"] {
        form.push(name, text(&template[name]));
    }
    Ok(editor(&session, &form, Some(&template), None, None))
}

/// Returns the URL at which the editor shows that this version was saved.
fn saved_at(template: &Value) -> String {
    format!(
        "/templates/{}?saved={}",
        template["id"], template["version"]
    )
}

fn body(form: &Form) -> Map<String, Value> {
    let mut body = Map::new();
    for name in ["name", "prompt", "system_prompt"] {
        form.put_text(&mut body, name);
    }
    body
}

/// Renders the template with the form's values, if it has a prompt.
async fn preview(session: &Session, form: &Form) -> Option<Result<Value, Problem>> {
    if form.word("prompt").is_empty() {
        return None;
    }
    let mut asked = body(form);
    asked.remove("name");
    let values = form.below("v.").filter(|(_, value)| !value.is_empty());
    let mut variables: Map<String, Value> = values
        .map(|(name, value)| (name.to_owned(), Value::from(value)))
        .collect();
    // `{{ prompt }}` is the request's own prompt.
    let own = variables.remove("prompt");
    asked.insert("template_variables".to_owned(), Value::Object(variables));
    asked.insert(
        "request_prompt".to_owned(),
        own.unwrap_or_else(|| Value::from("…")),
    );
    Some(session.send(op::PREVIEW_TEMPLATE, &[], asked).await)
}

pub async fn create(session: Session, form: Form) -> Result<Response, Problem> {
    save(&session, &form, None).await
}

pub async fn replace(
    Path(id): Path<String>,
    session: Session,
    form: Form,
) -> Result<Response, Problem> {
    let template = session.get(op::TEMPLATE, &[&id]).await?;
    save(&session, &form, Some(&template)).await
}

/// Shows a preview of the form, or saves it as a new template or a new version of `template`.
async fn save(
    session: &Session,
    form: &Form,
    template: Option<&Value>,
) -> Result<Response, Problem> {
    if form.get("action") == "preview" {
        let preview = preview(session, form).await;
        return Ok(editor(session, form, template, None, preview.as_ref()).into_response());
    }
    let call = match template {
        Some(template) => session.call(op::REPLACE_TEMPLATE, &[&template["id"].to_string()]),
        None => session.call(op::CREATE_TEMPLATE, &[]),
    };
    match once::create(call.body(body(form)), form).await {
        Ok(made) if template.is_some() && !made.is_repeated => {
            Ok(Redirect::to(&saved_at(&made.object)).into_response())
        }
        Ok(made) => Ok(made.redirect("/templates")),
        Err(problem) => {
            let preview = preview(session, form).await;
            let page = editor(session, form, template, Some(&problem), preview.as_ref());
            Ok(problem.on(page))
        }
    }
}

pub async fn delete(session: Session, Path(id): Path<String>) -> Result<Redirect, Problem> {
    session.get(op::DELETE_TEMPLATE, &[&id]).await?;
    Ok(Redirect::to("/templates"))
}

fn editor(
    session: &Session,
    form: &Form,
    template: Option<&Value>,
    problem: Option<&Problem>,
    preview: Option<&Result<Value, Problem>>,
) -> Markup {
    let is_saved = template.is_some_and(|saved| session.path.ends_with(&saved_at(saved)));
    let id = template.map(|template| template["id"].to_string());
    let action = id
        .as_ref()
        .map_or("/templates".to_owned(), |id| format!("/templates/{id}"));
    let title = template.map_or("New template", |template| text(&template["name"]));
    let about = template.map(|t| format!("Template {}, version {}", t["id"], t["version"]));
    let actions = html! {
        @if id.is_some() {
            (parts::confirmed("Delete", "Requests that use it are refused from then on.", &format!("{action}/delete")))
        }
    };
    let content = html! {
        (shell::head(title, about.as_deref().unwrap_or_default(), &actions))
        (once::notice(session))
        @if is_saved { p.notice.good role="status" { "Saved, as a new version." } }
        form.columns method="post" action=(action) data-follows="preview" {
            (once::field())
            (fields(form, problem, template.is_some()))
            (rendering(form, template, preview))
        }
    };
    shell::page(session, title, &content)
}

fn fields(form: &Form, problem: Option<&Problem>, exists: bool) -> Markup {
    html! {
        section.card {
            (parts::refusal(problem, &["name", "prompt", "system_prompt"]))
            (field(problem, "Name", "name", "", &html! {
                input type="text" name="name" value=(form.get("name")) required maxlength="100";
            }))
            (field(problem, "Prompt", "prompt", "Jinja: {{ name }} for a value, {{ prompt }} for the request's own prompt.", &html! {
                textarea.code-input name="prompt" required spellcheck="false" { "\n" (form.get("prompt")) }
            }))
            (field(problem, "System prompt", "system_prompt", "May use the same values.", &html! {
                textarea.code-input.short name="system_prompt" spellcheck="false" { "\n" (form.get("system_prompt")) }
            }))
            div.actions {
                button.primary type="submit" { @if exists { "Save as a new version" } @else { "Create the template" } }
                button.without-script type="submit" name="action" value="preview" { "Preview" }
                a.button href="/templates" { "Back" }
            }
        }
    }
}

fn rendering(
    form: &Form,
    template: Option<&Value>,
    preview: Option<&Result<Value, Problem>>,
) -> Markup {
    let known = match preview {
        Some(Ok(preview)) => &preview["variables"],
        _ => template.map_or(&Value::Null, |template| &template["variables"]),
    };
    let mut variables: BTreeSet<&str> = rows_of(known).iter().map(text).collect();
    if let Some(Err(problem)) = preview {
        variables.extend(missing(problem));
    }
    variables.extend(form.below("v.").map(|(name, _)| name));
    variables.insert("prompt");
    html! {
        div.stack {
            section.card #preview {
                h2 { "Preview" }
                div.fields { (values(form, variables)) }
                @match preview {
                    None if form.word("prompt").is_empty() => {
                        p.muted { "The rendered template appears here." }
                    }
                    None => { (unfilled(form)) }
                    Some(Ok(preview)) => {
                        @if let Some(system) = preview["system_prompt"].as_str() {
                            h3 { "System prompt" } p.prose.scroll { (system) }
                        }
                        h3 { "Prompt" } p.prose.scroll { (text(&preview["prompt"])) }
                    }
                    Some(Err(problem)) if lacks_only_values(problem) => { (unfilled(form)) }
                    Some(Err(problem)) => { p.notice.bad { (parts::sentence(problem.message())) } }
                }
            }
        }
    }
}

/// Returns the missing variables in an error.
fn missing(problem: &Problem) -> impl Iterator<Item = &str> {
    let errors = rows_of(&problem.body["error"]["errors"]).iter();
    errors.filter_map(|error| text(&error["param"]).strip_prefix("template_variables."))
}

/// Whether the only errors of a template are missing values.
pub fn lacks_only_values(problem: &Problem) -> bool {
    let errors = rows_of(&problem.body["error"]["errors"]);
    let is_missing = |error: &Value| error["code"] == "missing_variable";
    !errors.is_empty() && errors.iter().all(is_missing)
}

/// Renders the template without values.
fn unfilled(form: &Form) -> Markup {
    let texts = [("System prompt", "system_prompt"), ("Prompt", "prompt")];
    html! {
        @for (title, name) in texts {
            @if !form.word(name).is_empty() {
                h3 { (title) } p.prose.scroll { (highlighted(form.get(name))) }
            }
        }
    }
}

/// Renders the source of a template with its `{{ variables }}` marked.
fn highlighted(source: &str) -> Markup {
    let mut pieces = source.split("{{");
    html! {
        (pieces.next().unwrap_or_default())
        @for piece in pieces {
            @match piece.split_once("}}") {
                Some((name, rest)) => { span.variable { "{{" (name) "}}" } (rest) }
                None => { "{{" (piece) }
            }
        }
    }
}

/// Renders inputs for the values of a template's variables.
pub fn values<'a>(form: &Form, names: impl IntoIterator<Item = &'a str>) -> Markup {
    html! {
        @for name in names {
            @let field = format!("v.{name}");
            label.field {
                span.label { code { (name) } }
                input type="text" name=(field) value=(form.get(&field));
            }
        }
    }
}
