//! Instructions for programs: plain HTTP, the SDKs of OpenAI and Anthropic, the command line.

use maud::{Markup, html};
use serde_json::Value;

use super::{
    operations as op,
    parts::{amount, code_block, copyable, fact, kind, served, text},
    problem::Problem,
    session::Session,
    shell,
};

pub async fn page(session: Session) -> Result<Markup, Problem> {
    let models = session.get(op::MODELS, &[]).await?;
    let models = served(&models);
    let texts = models.iter();
    let texts: Vec<_> = texts.filter(|model| model["type"] == "text").collect();
    let model = texts.iter().find(|model| model["default"] == true);
    let model = model.or(texts.first());
    let model = model.map_or_else(
        || "PROVIDER/MODEL".to_owned(),
        |model| format!("{}/{}", text(&model["provider"]), text(&model["id"])),
    );
    let url = &session.public_url;
    let content = html! {
        (shell::head("Connect", "Every program needs an address and a key.",
            &html! { a.button.primary href="/keys/new" { "Create a key" } }))
        section.card {
            h2 { "Addresses" }
            dl.facts {
                (fact("API", &copyable(&format!("{url}/v1"))))
                (fact("OpenAI's SDKs", &copyable(&format!("{url}/openai/v1"))))
                (fact("Anthropic's SDKs", &copyable(&format!("{url}/anthropic"))))
                (fact("Reference", &html! { a href="/docs" { "API documentation" } ", " a href="/openapi.json" { "openapi.json" } }))
            }
        }
        div.columns.halves { (openai(url, &model)) (anthropic(url, &model)) }
        div.columns.halves { (plain(url)) (command_line(url)) }
        (models_of(&models))
    };
    Ok(shell::page(&session, "Connect", &content))
}

fn openai(url: &str, model: &str) -> Markup {
    let python = format!(
        "from openai import OpenAI\n\nclient = OpenAI(\n    base_url=\"{url}/openai/v1\",\n    \
         api_key=\"svc_...\",\n)\nanswer = client.chat.completions.create(\n    model=\"{model}\",\n    \
         messages=[{{\"role\": \"user\", \"content\": \"Name three rivers\"}}],\n)\n\
         print(answer.choices[0].message.content)"
    );
    let environment =
        format!("export OPENAI_BASE_URL={url}/openai/v1\nexport OPENAI_API_KEY=svc_...");
    html! {
        section.card {
            h2 { "OpenAI's SDK" }
            p.muted { "Chat Completions and Responses with every text model of this server, images and speech." }
            (code_block("Python", &python))
            p { "Or by the environment, for tools that read it:" }
            (code_block("Shell", &environment))
        }
    }
}

fn anthropic(url: &str, model: &str) -> Markup {
    let python = format!(
        "from anthropic import Anthropic\n\nclient = Anthropic(\n    base_url=\"{url}/anthropic\",\n    \
         api_key=\"svc_...\",\n)\nanswer = client.messages.create(\n    model=\"{model}\",\n    \
         max_tokens=1024,\n    messages=[{{\"role\": \"user\", \"content\": \"Name three rivers\"}}],\n)\n\
         print(answer.content[0].text)"
    );
    let environment =
        format!("export ANTHROPIC_BASE_URL={url}/anthropic\nexport ANTHROPIC_API_KEY=svc_...");
    html! {
        section.card {
            h2 { "Anthropic's SDK" }
            p.muted { "Messages, with every text model of this server." }
            (code_block("Python", &python))
            p { "Or by the environment:" }
            (code_block("Shell", &environment))
        }
    }
}

fn plain(url: &str) -> Markup {
    let curl = format!(
        "curl {url}/v1/generate/text \\\n  -H \"Authorization: Bearer $GENSVC_API_KEY\" \\\n  \
         -H 'Content-Type: application/json' \\\n  -d '{{\"prompt\": \"Name three rivers\"}}'"
    );
    html! {
        section.card {
            h2 { "Plain HTTP" }
            p.muted { "Text, images, video and speech. The playground writes these requests for you." }
            (code_block("curl", &curl))
        }
    }
}

fn command_line(url: &str) -> Markup {
    let shell = format!(
        "export GENSVC_BASE_URL={url}\nexport GENSVC_API_KEY=svc_...\n\
         gensvc generate text \"Name three rivers\"\n\
         gensvc generate image \"A lighthouse at dusk\" -o lighthouse.png"
    );
    html! {
        section.card {
            h2 { "Command line" }
            p.muted { "The server's own program is a client too." }
            (code_block("Shell", &shell))
        }
    }
}

/// The prices of a model that the page shows.
const PRICES: [(&str, &str); 4] = [
    ("/input_per_million", "a million input tokens"),
    ("/output_per_million", "a million output tokens"),
    ("/per_second", "a second"),
    ("/per_1000_characters", "1,000 characters"),
];

fn models_of(models: &[&Value]) -> Markup {
    html! {
        section.card {
            h2 { "Models, as SDKs name them" }
            p.muted {
                "Both SDKs take the text models, OpenAI's the image and speech models too. Videos are "
                "generated by the API."
            }
            div.table tabindex="0" { table {
                thead { tr { th { "Model" } th { "Type" } th { "Credits" } } }
                tbody { @for model in models {
                    tr {
                        td { (copyable(&format!("{}/{}", text(&model["provider"]), text(&model["id"])))) }
                        td { (kind(text(&model["type"]))) }
                        td.small { (prices(&model["prices"])) }
                    }
                } }
            } }
        }
    }
}

fn prices(prices: &Value) -> Markup {
    let known = PRICES.iter();
    let known = known.filter_map(|(path, unit)| Some((prices.pointer(path)?, *unit)));
    let known: Vec<_> = known.collect();
    let image = prices["per_image"].as_object().into_iter().flatten().next();
    html! {
        @for (at, (price, unit)) in known.iter().enumerate() {
            @if at > 0 { ", " }
            (amount(price)) " for " (unit)
        }
        @if let Some((size, tiers)) = image { (amount(&tiers["standard"])) " for " (size.replace('x', "×")) }
    }
}
