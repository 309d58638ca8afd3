//! `[routes.NAME]`

use gensvc::domain::route::Order;

use super::from_file;

const KEY: [(&str, &str); 1] = [("OPENAI_API_KEY", "sk-test")];

#[test]
fn routes_are_read_in_their_order() {
    let file = "[routes.fast]\nmodels = [\"openai/gpt-6-luna\", \"sandbox/sandbox-text-1\"]\n\
                order = \"cheapest\"\n[routes.a]\nmodels = [\"openai/gpt-image-2\"]\n";
    let catalogue = from_file(file, &KEY).unwrap().catalogue();
    let fast = catalogue.route("fast").unwrap();
    assert_eq!((fast.order, fast.candidates.len()), (Order::Cheapest, 2));
    assert_eq!(catalogue.route("a").unwrap().order, Order::Given);
    let none = from_file("", &[]).unwrap().catalogue();
    assert!(none.route("fast").is_none());
}

#[test]
fn a_bad_route_is_refused_with_the_fix() {
    for (route, error) in [
        (
            "[routes.fast]\nmodels = []",
            "routes.fast.models has 0 models: list 1 to 8, each as \"provider/model\"",
        ),
        (
            "[routes.fast]\nmodels = [\"gpt-6-luna\"]",
            "routes.fast.models names \"gpt-6-luna\", which has no provider: write it as \
             \"provider/model\"",
        ),
        (
            "[routes.fast]\nmodels = [\"route/fast\"]",
            "routes.fast.models names \"route/fast\", a route: list the models themselves, as \
             \"provider/model\"",
        ),
        (
            "[routes.fast]\nmodels = [\"openai/gpt-6-luna\", \"openai/gpt-image-2\"]",
            "routes.fast.models names \"openai/gpt-image-2\", a model for image, after one for \
             text: a route has models of one type",
        ),
        (
            "[routes.fast]\nmodels = [\"openai/gpt-6-luna\", \"openai/gpt-6-luna\"]",
            "routes.fast.models names \"openai/gpt-6-luna\", twice: list each model once",
        ),
        (
            "[routes.fast]\nmodels = [\"anthropic/claude-haiku-4-5\"]",
            "routes.fast.models names \"anthropic/claude-haiku-4-5\", whose provider is not \
             enabled (no key in ANTHROPIC_API_KEY): enable it, or remove the model from the route",
        ),
        (
            "[routes.fast]\nmodels = [\"openai/gpt-image-2\"]\norder = \"fastest\"",
            "routes.fast.order is \"fastest\", by the time to the first token, but its models are for \
             image: use \"given\" or \"cheapest\"",
        ),
        (
            "[routes.Fast]\nmodels = [\"openai/gpt-6-luna\"]",
            "routes.Fast is no name for a route: use 1 to 40 lower-case letters, digits, -, _ and .",
        ),
    ] {
        let found = from_file(route, &KEY).unwrap_err().to_string();
        assert_eq!(found, error);
    }
    for (route, part) in [
        (
            "models = [\"openai/none\"]",
            "which is no enabled model of openai: use one of ",
        ),
        (
            "models = [\"none/m\"]",
            "whose provider does not exist: use one of openai",
        ),
        (
            "models = [\"openai/gpt-6-luna\"]\norder = \"best\"",
            "order",
        ),
        ("order = \"given\"", "models"),
        ("modles = []", "modles"),
    ] {
        let found = from_file(&format!("[routes.fast]\n{route}"), &KEY);
        let found = found.unwrap_err().to_string();
        assert!(found.contains(part), "{found}");
    }
    let provider = "[providers.route]\nkind = \"openai_compatible\"\nbase_url = \"https://a.test\"\n\
        [[providers.route.models]]\nid = \"llama\"\ntype = \"text\"\n\
        prices = { input_per_million = \"1\", output_per_million = \"1\" }\n";
    let found = from_file(provider, &KEY).unwrap_err().to_string();
    assert_eq!(
        found,
        "providers.route is a name for routes: rename the provider"
    );
}
