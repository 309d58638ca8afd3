//! Tools that exist only in Responses. Vendors get functions; callers get calls of their tools.

use super::*;
use crate::domain::validate::FieldCode;

/// Tools as agents send them: some with the request, some as an item of the input.
fn tools() -> Value {
    let function = json!({"type": "function", "name": "list", "description": "Lists.",
        "parameters": {"type": "object"}, "strict": false});
    let patch = json!({"type": "custom", "name": "patch", "description": "Patches.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}});
    json!({"model": "m", "input": [
            {"type": "additional_tools", "role": "developer", "id": "at_1", "tools": [
                {"type": "namespace", "name": "functions", "description": "", "tools": [
                    {"type": "custom", "name": "exec"}, {"type": "function", "name": "wait"}]}]},
            {"role": "user", "content": "x"}],
        "tools": [function, patch,
            {"type": "namespace", "name": "crm", "description": "Customers.",
                "tools": [function, {"type": "function", "name": "get"}, patch]}]})
}

fn named(name: &str, arguments: &str) -> ToolCall {
    ToolCall {
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        ..call(None)
    }
}

#[test]
fn they_are_functions() {
    let read = read(tools()).unwrap();
    let functions = &read.dialogue.conversation.tools.functions;
    let names: Vec<&str> = functions.iter().map(|f| f.name.as_str()).collect();
    let expected = [
        "list",
        "patch",
        "crm__list",
        "crm__get",
        "crm__patch",
        "exec",
        "wait",
    ];
    assert_eq!(names, expected);
    let about: Vec<_> = functions.iter().map(|f| f.description.as_deref()).collect();
    let expected = [
        Some("Lists."),
        Some("Patches."),
        Some("Customers.\n\nLists."),
        None,
        Some("Patches."),
        None,
        None,
    ];
    assert_eq!(about, expected);
    let schema = |at: usize| functions[at].parameters.as_ref().unwrap().schema.value();
    let about = "A text of this lark grammar:\nstart: /.+/";
    let patched = json!({"type": "object", "required": ["input"], "additionalProperties": false,
        "properties": {"input": {"type": "string", "description": about}}});
    assert_eq!((schema(1), schema(4)), (patched.clone(), patched));
    assert_eq!(schema(5)["properties"]["input"], json!({"type": "string"}));
    assert_eq!(functions[0].strict, Some(false));
}

/// Calls are returned in the form of the given tools, and are the same when a call is sent back.
#[test]
fn their_calls_are_those_of_the_tools() {
    let input = "*** \"a\"\n";
    let custom = json!({ "input": input }).to_string();
    let calls = [
        named("list", "{}"),
        named("crm__list", "{\"a\":1}"),
        named("crm__patch", &custom),
        named("exec", &custom),
        // A model may write anything.
        named("patch", "no JSON"),
    ];
    let expected = [
        json!({"type": "function_call", "name": "list", "arguments": "{}"}),
        json!({"type": "function_call", "name": "list", "namespace": "crm", "arguments": "{\"a\":1}"}),
        json!({"type": "custom_tool_call", "name": "patch", "namespace": "crm", "input": input}),
        json!({"type": "custom_tool_call", "name": "exec", "namespace": "functions", "input": input}),
        json!({"type": "custom_tool_call", "name": "patch", "input": "no JSON"}),
    ];
    let parts: Vec<Part> = calls.iter().cloned().map(Part::ToolCall).collect();
    let pieces = calls.iter().flat_map(|call| {
        let begun = ToolCall {
            arguments: String::new(),
            ..call.clone()
        };
        let (first, second) = call.arguments.split_at(call.arguments.len() / 2);
        let pieces = [first, second].map(|piece| Delta::Arguments(piece.to_owned()));
        std::iter::once(Delta::ToolCall(begun)).chain(pieces)
    });
    let pieces: Vec<Delta> = pieces.collect();
    let end = answer(parts, Stop::Tools);
    let events = streamed(writer(tools()), &pieces, &end);
    let last = &events.last().unwrap()["response"]["output"];
    let whole: Value = serde_json::from_str(&writer(tools()).whole(&end)).unwrap();
    assert_eq!(whole["output"], *last);
    for (at, expected) in expected.iter().enumerate() {
        let of = |kind: &str| {
            let kind = format!("response.{kind}");
            let mut events = events.iter();
            events.find(|e| e["type"] == kind.as_str() && e["output_index"] == at)
        };
        let mut item = last[at].clone();
        assert_eq!(of("output_item.done").unwrap()["item"], item);
        for name in ["id", "status", "call_id"] {
            assert!(item.as_object_mut().unwrap().remove(name).is_some());
        }
        assert_eq!(item, *expected);
        let begun = &of("output_item.added").unwrap()["item"];
        assert_eq!(begun["name"], expected["name"]);
        if let Some(input) = expected.get("input") {
            assert_eq!(of("custom_tool_call_input.delta").unwrap()["delta"], *input);
            assert_eq!(of("custom_tool_call_input.done").unwrap()["input"], *input);
            assert_eq!(begun["input"], "");
        } else {
            let done = of("function_call_arguments.done").unwrap();
            assert_eq!(done["name"], expected["name"]);
            assert_eq!(done["arguments"], expected["arguments"]);
        }
    }
    let mut body = tools();
    let input = body["input"].as_array_mut().unwrap();
    input.extend(last.as_array().unwrap().iter().cloned());
    input.push(json!({"type": "custom_tool_call_output", "call_id": "c", "output": "done"}));
    let conversation = read(body).unwrap().dialogue.conversation;
    let mut brought = end.parts;
    // Invalid JSON becomes text.
    brought.pop();
    let text = json!({"input": "no JSON"}).to_string();
    brought.push(Part::ToolCall(named("patch", &text)));
    assert_eq!(conversation.messages[1].parts, brought);
    let result = &conversation.messages[2].parts[..];
    assert!(matches!(result, [Part::ToolResult(result)] if result.call_id == "c"));
}

#[test]
fn two_of_one_name_are_refused() {
    let mut body = tools();
    body["tools"][0]["name"] = json!("crm__get");
    assert_eq!(read(body).unwrap_err()[0].param, "tools");
    let mut body = tools();
    body["tools"][0]["name"] = json!("wait");
    assert_eq!(read(body).unwrap_err()[0].param, "tools");
    // A tool can be chosen.
    let mut body = tools();
    body["tool_choice"] = json!({"type": "custom", "name": "patch"});
    let conversation = read(body).unwrap().dialogue.conversation;
    assert_eq!(
        conversation.tools.choice,
        ToolChoice::Named("patch".to_owned())
    );
}

#[test]
fn what_only_tools_of_another_type_have_is_refused() {
    for (tool, field) in [
        (
            json!({"type": "function", "name": "f", "tools": []}),
            "tools",
        ),
        (
            json!({"type": "function", "name": "f", "format": {"type": "text"}}),
            "format",
        ),
        (
            json!({"type": "custom", "name": "f", "parameters": {}}),
            "parameters",
        ),
        (
            json!({"type": "namespace", "name": "f", "strict": true, "tools": []}),
            "strict",
        ),
    ] {
        let errors = read(json!({"model": "m", "input": "x", "tools": [tool]})).unwrap_err();
        let [error] = &errors[..] else {
            panic!("{errors:?}")
        };
        let expected = (format!("tools[0].{field}"), FieldCode::NotAllowed);
        assert_eq!((error.param.clone(), error.code), expected);
    }
}
