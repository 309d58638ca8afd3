//! The pages for people: their links lead somewhere, and the names in them exist. That their
//! examples work is seen by `make check-docs`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use gensvc::{api::Code, config::load::DEFAULT_TOML};
use toml::{Table, Value};

/// All pages, each with its text.
fn pages() -> Vec<(PathBuf, String)> {
    let folders = [".", "docs", "docs/operate", "docs/sdks", "migrations"];
    let files = folders.map(|folder| fs::read_dir(folder).unwrap());
    let files = files.into_iter().flatten().map(|file| file.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect()
}

/// What stands between each `begin` and the next `end`.
fn between<'a>(text: &'a str, begin: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    let rests = text.split(begin).skip(1);
    rests.filter_map(move |rest| rest.split(end).next())
}

/// The words that begin with `prefix`, that included.
fn words<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    let of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(move |c| !of_a_name(c))
        .filter(move |word| word.starts_with(prefix))
}

/// A heading as a link names it.
fn anchor(heading: &str) -> String {
    let name = heading.trim_start_matches('#').trim().to_lowercase();
    name.chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// Why a link of `page` leads nowhere.
fn broken(page: &Path, link: &str) -> Option<String> {
    let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => page.to_owned(),
        file => page.parent().unwrap().join(file),
    };
    if !target.exists() {
        return Some(format!("{}: {link} is not there", page.display()));
    }
    if fragment.is_empty() {
        return None;
    }
    let text = fs::read_to_string(target).unwrap();
    let mut headings = text.lines().filter(|line| line.starts_with('#'));
    let found = headings.any(|line| anchor(line) == fragment);
    (!found).then(|| format!("{}: {link} names no heading", page.display()))
}

#[test]
fn links_lead_somewhere() {
    let mut links = 0;
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        for link in between(&text, "](", ")").filter(|link| !link.contains("://")) {
            links += 1;
            wrong.extend(broken(&page, link));
        }
    }
    assert!(links > 40, "only {links} links");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(broken(Path::new("docs/api.md"), "none.md").is_some());
    assert!(broken(Path::new("docs/api.md"), "operate.md#none").is_some());
}

#[test]
fn settings_exist() {
    let defaults = Value::Table(DEFAULT_TOML.parse::<Table>().unwrap());
    let mut found = 0;
    for (page, text) in pages() {
        for variable in words(&text, "GENSVC__") {
            let path = variable["GENSVC__".len()..].to_lowercase();
            if path.is_empty() || path == "section__key" || path == "providers__name__key" {
                continue;
            }
            let setting = path
                .split("__")
                .try_fold(&defaults, |table, key| table.get(key));
            assert!(setting.is_some(), "{}: {variable}", page.display());
            found += 1;
        }
    }
    assert!(found > 10, "only {found} settings");
}

#[test]
fn metrics_exist() {
    let page = fs::read_to_string("docs/operate/monitor.md").unwrap();
    let sources = ["metrics", "live"].map(|name| format!("src/observe/{name}.rs"));
    let sources = sources
        .map(|file| fs::read_to_string(file).unwrap())
        .join("");
    let mut found = 0;
    for metric in words(&page, "gensvc_") {
        let name = metric.trim_start_matches("gensvc_");
        let name = name.trim_end_matches("_total").trim_end_matches("_info");
        assert!(sources.contains(&format!("\"{name}\"")), "{metric}");
        found += 1;
    }
    assert!(found > 20, "only {found} metrics");
}

#[test]
fn every_error_is_explained() {
    let page = fs::read_to_string("docs/api.md").unwrap();
    for code in Code::ALL {
        let code = format!("`{}`", code.as_str());
        assert!(page.contains(&code), "{code}");
    }
}
