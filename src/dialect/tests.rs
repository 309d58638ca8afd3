mod receipts;

use serde_json::json;

use super::*;

#[test]
fn only_a_lifetime_above_the_default_is_a_long_write() {
    let part = |ttl: &str| {
        let breakpoint = json!({"mode": "explicit", "ttl": ttl});
        json!({"input": [{"content": [{"text": "x", "prompt_cache_breakpoint": breakpoint}]}]})
    };
    let options = |ttl: Value| json!({"prompt_cache_options": {"ttl": ttl}});
    let retention = |value: &str| json!({ "prompt_cache_retention": value });
    for (body, writes) in [
        (json!({}), CacheWrites::None),
        (json!({"prompt_cache_options": null}), CacheWrites::None),
        (json!({"prompt_cache_options": {}}), CacheWrites::Short),
        (options(json!("30m")), CacheWrites::Short),
        (options(json!("12h")), CacheWrites::Long),
        (options(json!(1)), CacheWrites::Long),
        (json!({"prompt_cache_retention": null}), CacheWrites::None),
        (retention("in_memory"), CacheWrites::None),
        (retention("24h"), CacheWrites::Long),
        (part("30m"), CacheWrites::Short),
        (part("12h"), CacheWrites::Long),
    ] {
        assert_eq!(
            openai_cache_writes(body.as_object().unwrap()),
            writes,
            "{body}"
        );
    }
}
