//! Retirement, replacements and aliases of models, and what is wrong with them.

use super::*;

/// Three models of text and one of images; `lines` belong to the first.
fn models(lines: &str) -> String {
    let model = |id: &str, kind: &str, more: &str| {
        format!("[[providers.x.models]]\nid = \"{id}\"\ntype = \"{kind}\"\n{more}\n")
    };
    let prices = "prices = { input_per_million = \"1\", output_per_million = \"1\" }";
    let sizes = "prices.per_image.1024x1024 = { standard = \"1\" }\n\
                 limits.native_sizes = [\"1024x1024\"]";
    [
        "[providers.x]\nkind = \"openai_compatible\"\nbase_url = \"http://a.test\"\n".to_owned(),
        model("a", "text", &format!("default = true\n{prices}\n{lines}")),
        model(
            "b",
            "text",
            &format!("{prices}\nretiring = 2027-03-01\nreplacement = \"c\""),
        ),
        model("c", "text", &format!("{prices}\naliases = [\"taken\"]")),
        model("i", "image", sizes),
        model("off", "text", "enabled = false"),
        model(
            "late",
            "text",
            &format!("prices = [{}]", from("2027-02-02")),
        ),
    ]
    .concat()
}

#[test]
fn replacements_and_aliases_are_read() {
    let lines = "retiring = 2027-02-01\nreplacement = \"b\"\naliases = [\"latest\", \"newest\"]";
    let c = from_file(&models(lines), &[]).unwrap();
    let catalogue = c.catalogue();
    let a = catalogue.find("x", "latest").unwrap();
    assert_eq!(
        (a.id.as_str(), a.replacement.as_deref()),
        ("a", Some("x/b"))
    );
    let summary = c.summary().to_string();
    let line = summary
        .lines()
        .find(|line| line.contains("text a "))
        .unwrap();
    assert!(
        line.ends_with("; retires on 2027-02-01, replaced by x/b; also latest, newest"),
        "{line}"
    );
    for replacement in ["x/b", "off", "openai/gpt-6-luna"] {
        let lines = format!("retiring = 2027-02-01\nreplacement = \"{replacement}\"");
        from_file(&models(&lines), &[]).unwrap();
    }
    let warned = |lines: &str| {
        let c = from_file(&models(lines), &[]).unwrap();
        let mut warnings = c.warnings.iter();
        warnings.any(|warning| warning.starts_with("providers.x.models[0].replacement is"))
    };
    let off = "retiring = 2027-02-01\nreplacement = ";
    assert!(warned(&format!("{off}\"off\"")) && warned(&format!("{off}\"openai/gpt-6-luna\"")));
    assert!(!warned(&format!("{off}\"b\"")));
    // What a file inherits can be unset.
    let unset =
        "[[providers.openai.models]]\nid = \"gpt-4o\"\nretiring = \"\"\nreplacement = \"\"\n";
    let c = from_file(unset, &[("OPENAI_API_KEY", "k")]).unwrap();
    let catalogue = c.catalogue();
    let model = catalogue.find("openai", "gpt-4o").unwrap();
    assert_eq!((model.retiring, &model.replacement), (None, &None));
}

#[test]
fn of_lifecycles() {
    let day = "retiring = 2027-02-01\n";
    let late = "retiring = 2027-03-01\n";
    let at = "providers.x.models[0]";
    let choose = "choose another";
    for (lines, want) in [
        (
            format!("{day}replacement = \"zz\""),
            format!(
                "{at}.replacement is \"zz\", which is no model of the configuration: use the id of a model of x, or \"provider/id\""
            ),
        ),
        (
            format!("{day}replacement = \"y/c\""),
            format!(
                "{at}.replacement is \"y/c\", which is no model of the configuration: use the id of a model of x, or \"provider/id\""
            ),
        ),
        (
            format!("{day}replacement = \"i\""),
            format!("{at}.replacement is \"i\", a model for image: name one for text"),
        ),
        (
            format!("{late}replacement = \"b\""),
            format!(
                "{at}.replacement is \"b\", which is retired on 2027-03-01 and must outlast this model, retired on 2027-03-01: name another"
            ),
        ),
        (
            format!("{day}replacement = \"late\""),
            format!(
                "{at}.replacement is \"late\", which is not served before 2027-02-02, after this model is retired on 2027-02-01: name another"
            ),
        ),
        (
            format!("{day}replacement = \"a\""),
            format!("{at}.replacement leads back to this model: name one that stays"),
        ),
        (
            "aliases = [\"c\"]".to_owned(),
            format!("{at}.aliases[0] is \"c\", already a model of x: {choose}"),
        ),
        (
            "aliases = [\"n\", \"off\"]".to_owned(),
            format!("{at}.aliases[1] is \"off\", already a model of x: {choose}"),
        ),
        (
            "aliases = [\"gpt-6-luna\"]".to_owned(),
            format!("{at}.aliases[0] is \"gpt-6-luna\", already a model of openai: {choose}"),
        ),
        (
            "aliases = [\"openai/gpt-6-luna\"]".to_owned(),
            format!(
                "{at}.aliases[0] is \"openai/gpt-6-luna\", already a model of openai: {choose}"
            ),
        ),
        (
            "aliases = [\"n\", \"n\"]".to_owned(),
            format!("{at}.aliases[1] is \"n\", already an alias of x/a: {choose}"),
        ),
        (
            "aliases = [\"taken\"]".to_owned(),
            format!(
                "providers.x.models[2].aliases[0] is \"taken\", already an alias of x/a: {choose}"
            ),
        ),
        (
            "aliases = [\"\"]".to_owned(),
            format!(
                "{at}.aliases[0] is \"\": must have 1 to 200 characters, none of them a control character"
            ),
        ),
        (
            "aliases = 3".to_owned(),
            format!("{at}.aliases is 3: must be a list"),
        ),
    ] {
        check(&models(&lines), &[], &want);
    }
    let looped = models("replacement = \"b\"").replace("aliases", "replacement = \"a\"\naliases");
    let want = format!("{at}.replacement leads back to this model: name one that stays");
    check(&looped, &[], &want);
}

/// A text model with these prices.
fn dated(prices: &str) -> String {
    format!(
        "[providers.x]\nkind = \"openai_compatible\"\nbase_url = \"http://a.test\"\n\
         [[providers.x.models]]\nid = \"m\"\ntype = \"text\"\nprices = {prices}\n"
    )
}

const FIRST: &str = "{ input_per_million = \"1\", output_per_million = \"2\" }";

fn from(day: &str) -> String {
    format!("{{ valid_from = {day}, {BASE} }}")
}

#[test]
fn prices_by_date_are_read() {
    let file = dated(&format!(
        "[{FIRST}, {}]\nmarkup = \"2\"",
        from("2026-12-01")
    ));
    let c = from_file(&file, &[]).unwrap();
    let summary = c.summary().to_string();
    let line = summary
        .lines()
        .find(|line| line.contains("text m "))
        .unwrap();
    assert!(
        line.ends_with(
            "input_per_million 2, output_per_million 4; \
             from 2026-12-01: input_per_million 6, output_per_million 8"
        ),
        "{line}"
    );
    // The built-in prices of a model apply until the first day of a list.
    let tiers = format!("tiers = [{{ above_input_tokens = 272000, {CACHED}, {WRITES}, {BASE} }}]");
    let file = luna(&format!("{CACHED}, {tiers}, "));
    let c = from_file(&file, &[("OPENAI_API_KEY", "k")]).unwrap();
    let built_in = from_env(&[("OPENAI_API_KEY", "k")]).unwrap().catalogue();
    let built_in = built_in.find("openai", "gpt-6-luna").unwrap().prices();
    let at = |time: &str| {
        let catalogue = c.catalogue().at(time.parse().unwrap());
        catalogue.find("openai", "gpt-6-luna").unwrap().prices()
    };
    assert_eq!(at("2026-11-30T23:59:59.999999Z"), built_in);
    let later = serde_json::to_value(at("2026-12-01T00:00:00Z")).unwrap();
    assert_eq!(later["input_per_million"], "3");
    let change = c
        .changes
        .iter()
        .find(|change| change.key.ends_with("luna.prices"));
    assert!(change.unwrap().value.contains("valid_from = 2026-12-01"));
}

const BASE: &str = "input_per_million = \"3\", output_per_million = \"4\"";
const CACHED: &str = "cached_input_per_million = \"0.3\"";
const WRITES: &str = "cache_write_per_million = \"4\", cache_write_long_per_million = \"5\"";

/// A built-in model with prices from a day on.
fn luna(prices: &str) -> String {
    format!(
        "[[providers.openai.models]]\nid = \"gpt-6-luna\"\nprices = [{}]\n",
        from("2026-12-01").replacen(BASE, &format!("{prices}{WRITES}, {BASE}"), 1)
    )
}

#[test]
fn of_prices_by_date() {
    let at = "providers.x.models[0].prices";
    let (first, second) = (from("2026-12-01"), from("2026-12-01"));
    let as_before = "is missing: add it, as the prices before have it";
    for (prices, want) in [
        ("[]".to_owned(), format!("{at} is empty: list at least one")),
        (
            format!("[{FIRST}, {FIRST}]"),
            format!("{at}[1].valid_from is missing: name the day from which these prices apply"),
        ),
        (
            format!("[{first}, {second}]"),
            format!(
                "{at}[1].valid_from is 2026-12-01: must be later than that of the prices before it"
            ),
        ),
        (
            format!("[{FIRST}, {}]", from("\"soon\"")),
            format!("{at}[1].valid_from is \"soon\": must be a date, such as 2027-01-14"),
        ),
        (
            format!("[{FIRST}, {{ valid_from = 2026-12-01, input_per_million = \"1\" }}]"),
            format!(
                "{at}[1].output_per_million is missing: a model without a complete price is not served; add it or set enabled = false"
            ),
        ),
        (
            format!("[{{ {CACHED}, {}, {}]", &FIRST[2..], from("2026-12-01")),
            format!("{at}[1].cached_input_per_million {as_before}"),
        ),
        (
            format!("[{}]\ndefault = true", from("2026-12-01")),
            format!(
                "{at}[0].valid_from is 2026-12-01, but a default model must always be served: list its current prices first, without valid_from"
            ),
        ),
        (
            format!("[{FIRST}, 3]"),
            format!("{at}[1] is 3: must be a table with keys"),
        ),
    ] {
        check(&dated(&prices), &[], &want);
    }
    // The built-in prices are not in the file, whose indexes errors name.
    let at = "providers.openai.models[0].prices[0]";
    let keyed = [("OPENAI_API_KEY", "k")];
    let want = format!("{at}.cached_input_per_million {as_before}");
    check(&luna(""), &keyed, &want);
    let negative = luna("cached_input_per_million = \"-1\", ");
    let want = format!("{at}.cached_input_per_million is \"-1\": must not be negative");
    check(&negative, &keyed, &want);
}
