//! The catalogue's prices, and the operator's margin on them.

use super::{defaults::ALL_KEYS, *};
use gensvc::domain::{
    credits::Credits,
    pricing::{CacheWrites, Prices, TextPrices, TokenPrices},
};

/// The prices of a configured model.
fn prices(config: &Config, provider: &str, id: &str) -> Prices {
    config.catalogue().find(provider, id).unwrap().prices()
}

fn text(config: &Config, provider: &str, id: &str) -> TextPrices {
    let Prices::Text(text) = prices(config, provider, id) else {
        panic!("{id}")
    };
    text
}

/// Input, cached, written for a short time and for long, output.
fn row(prices: &TokenPrices) -> String {
    let optional = |price: Option<Credits>| price.map_or("-".to_owned(), |price| price.to_string());
    [
        prices.input_per_million.to_string(),
        optional(prices.cached_input_per_million),
        optional(prices.cache_write_per_million),
        optional(prices.cache_write_long_per_million),
        prices.output_per_million.to_string(),
    ]
    .join(" ")
}

/// US cents; announced increases are included.
#[test]
fn what_the_vendors_bill() {
    let config = from_env(ALL_KEYS).unwrap();
    let tier = |above: u64, prices: &'static str| Some((above, prices));
    for (provider, id, base, above) in [
        (
            "openai",
            "gpt-6-luna",
            "10 1 12.5 25 50",
            tier(272_000, "20 2 25 50 75"),
        ),
        (
            "openai",
            "gpt-6.1-terra",
            "100 5 125 250 500",
            tier(272_000, "200 10 250 500 750"),
        ),
        (
            "openai",
            "gpt-6.1-sol",
            "200 10 250 500 1000",
            tier(272_000, "400 20 500 1000 1500"),
        ),
        (
            "openai",
            "gpt-6-astra",
            "1000 100 1250 2500 5000",
            tier(272_000, "2000 200 2500 5000 7500"),
        ),
        (
            "openai",
            "gpt-6.2-sol",
            "200 10 250 500 1000",
            tier(272_000, "400 20 500 1000 1500"),
        ),
        (
            "openai",
            "gpt-6.2-astra",
            "800 40 1000 2000 4000",
            tier(272_000, "1600 80 2000 4000 6000"),
        ),
        (
            "openai",
            "gpt-5.6-sol",
            "500 50 625 1250 3000",
            tier(272_000, "1000 100 1250 2500 4500"),
        ),
        ("gemini", "gemini-4-hydrogen", "150 7.5 - - 750", None),
        ("gemini", "gemini-4-neon", "300 15 - - 1500", None),
        ("openai", "gpt-5.4-mini", "75 7.5 - - 450", None),
        (
            "anthropic",
            "claude-haiku-5-5",
            "10 1 12.5 20 50",
            tier(100_000, "50 5 62.5 100 250"),
        ),
        (
            "anthropic",
            "claude-sonnet-5-5",
            "200 10 250 400 1000",
            None,
        ),
        ("anthropic", "claude-opus-5-5", "400 20 500 800 2000", None),
        ("anthropic", "claude-haiku-4-5", "100 10 125 200 500", None),
        ("gemini", "gemini-3.5-flash-lite", "30 3 - - 250", None),
        ("gemini", "gemini-3.8-flash", "150 15 - - 750", None),
        ("gemini", "gemini-4-argon", "400 20 - - 2000", None),
    ] {
        let text = text(&config, provider, id);
        assert_eq!(row(&text.base), base, "{id}");
        let tiers: Vec<_> = text
            .tiers
            .iter()
            .map(|t| (t.above_input_tokens, row(&t.prices)))
            .collect();
        let want: Vec<_> = above
            .into_iter()
            .map(|(above, row)| (above, row.to_owned()))
            .collect();
        assert_eq!(tiers, want, "{id}");
    }
}

/// A read costs less than other input and a write more, in every tier, and no write is made that
/// was not asked for.
#[test]
fn the_cache_is_priced_in_proportion() {
    for model in from_env(ALL_KEYS).unwrap().catalogue().models() {
        let Prices::Text(prices) = model.prices() else {
            continue;
        };
        let id = &model.id;
        let tiers = prices.tiers.iter().map(|tier| tier.prices);
        for row in tiers.chain([prices.base]) {
            let input = row.input_per_million;
            assert!(row.cached_input_per_million.unwrap() < input, "{id}");
            let short = row.cache_write_per_million;
            let long = row.cache_write_long_per_million;
            assert!(
                short.is_none_or(|short| short > input && long.unwrap() > short),
                "{id}"
            );
        }
        let unasked = text_of(&model.kind).cache_writes;
        let writes = prices.base.cache_write_per_million.is_some();
        assert!(!writes || unasked == CacheWrites::None, "{id}");
    }
}

#[test]
fn a_cache_that_is_written_unasked_is_known() {
    let model = |wire: &str| {
        let file = format!(
            "[[providers.openai.models]]\nid = \"m\"\ntype = \"text\"\n{wire}\n\
             prices = {{ input_per_million = \"4\", cache_write_per_million = \"5\", output_per_million = \"6\" }}"
        );
        let config = from_file(&file, &[("OPENAI_API_KEY", "k")]).unwrap();
        let catalogue = config.catalogue();
        text_of(&catalogue.find("openai", "m").unwrap().kind).cache_writes
    };
    assert_eq!(model(""), CacheWrites::Short);
    assert_eq!(model("wire = { explicit_cache = true }"), CacheWrites::None);
}

#[test]
fn the_most_specific_margin_wins() {
    let file = |provider: &str, model: &str| {
        format!(
            "[pricing]\nmarkup = 2\n[providers.x]\nkind = \"openai_compatible\"\n\
             base_url = \"http://a.test\"\n{provider}\n[[providers.x.models]]\nid = \"m\"\n\
             type = \"text\"\n{model}\nprices = {{ input_per_million = \"1\", \
             cached_input_per_million = \"0.000001\", output_per_million = \"10\", \
             tiers = [{{ above_input_tokens = 9, input_per_million = \"3\", \
             cached_input_per_million = \"0\", output_per_million = \"30\" }}] }}"
        )
    };
    let env = "GENSVC__PROVIDERS__X__MARKUP";
    for (provider, model, env, base, above) in [
        ("", "", &[][..], "2 0.000002 - - 20", "6 0 - - 60"),
        (
            "markup = 1.25",
            "",
            &[],
            "1.25 0.000002 - - 12.5",
            "3.75 0 - - 37.5",
        ),
        (
            "markup = 5",
            "",
            &[(env, "1.25")],
            "1.25 0.000002 - - 12.5",
            "3.75 0 - - 37.5",
        ),
        (
            "markup = 5",
            "markup = \"1\"",
            &[],
            "1 0.000001 - - 10",
            "3 0 - - 30",
        ),
        (
            "",
            "markup = 0.333333",
            &[],
            "0.333333 0.000001 - - 3.33333",
            "0.999999 0 - - 9.99999",
        ),
    ] {
        let config = from_file(&file(provider, model), env).unwrap();
        let text = text(&config, "x", "m");
        assert_eq!(
            (row(&text.base), row(&text.tiers[0].prices)),
            (base.to_owned(), above.to_owned())
        );
    }
}

#[test]
fn a_margin_below_cost_is_told() {
    let file = "[pricing]\nmarkup = 0.2\n[providers.openai]\nmarkup = \"0.999999\"\n\
        [[providers.anthropic.models]]\nid = \"m\"\ntype = \"text\"\nmarkup = 0.5\n\
        prices = { input_per_million = \"1\", output_per_million = \"1\" }\n\
        [providers.gemini]\nmarkup = 1";
    assert_eq!(
        from_file(file, &[]).unwrap().warnings,
        [
            "pricing.markup is 0.2: prices are below the provider's",
            "providers.anthropic.models[0].markup is 0.5: prices are below the provider's",
            "providers.openai.markup is 0.999999: prices are below the provider's",
        ]
    );
}

#[test]
fn the_margin_is_on_every_type() {
    let with = |env: &[(&str, &str)]| {
        let config = from_env(env).unwrap();
        ["image", "video", "speech"]
            .map(|kind| prices(&config, "sandbox", &format!("sandbox-{kind}-1")))
    };
    let shown = |prices: [Prices; 3]| prices.map(|prices| serde_json::json!(prices));
    let [image, video, speech] = shown(with(&[("GENSVC__PRICING__MARKUP", "1.2")]));
    let tiers = serde_json::json!({"standard": "1.2", "hd": "2.4"});
    assert!(
        image["per_image"]
            .as_object()
            .unwrap()
            .values()
            .all(|price| *price == tiers)
    );
    assert_eq!(video["per_second"], "6");
    assert_eq!(speech["per_1000_characters"], "1.2");
    assert_eq!(
        shown(with(&[("GENSVC__PRICING__MARKUP", "1")])),
        shown(with(&[]))
    );
}
