//! Web searches that a vendor ran during an answer, stored as opaque parts.

use serde_json::Value;

use super::Part;

/// Returns whether an item of the Responses API is a search that `OpenAI` bills. Opening a page is
/// free.
fn is_search_call(item: &Value) -> bool {
    let action = item.pointer("/action/type").and_then(Value::as_str);
    item["type"] == "web_search_call"
        && item["status"] != "failed"
        && action.is_none_or(|action| action == "search")
}

/// Counts the searches in a complete or partial answer. Failed searches are not billed.
pub fn searches(parts: &[Part]) -> u64 {
    let blocks = || parts.iter().filter_map(Part::block);
    let failed = |id: &Value| {
        blocks().any(|block| {
            block["tool_use_id"] == *id
                && block["content"]["type"] == "web_search_tool_result_error"
        })
    };
    let made = blocks().filter(|block| {
        is_search_call(block)
            || block["type"] == "server_tool_use"
                && block["name"] == "web_search"
                && !failed(&block["id"])
    });
    made.count() as u64
}
