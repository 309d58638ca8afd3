//! References of a Responses body to items of earlier answers of the account.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use http::StatusCode;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{
    api::{ApiState, body::JsonBody, error::ApiError},
    dialect::responses::referenced,
    domain::{
        ability::Ability,
        validate::{Body, FieldCode},
    },
    memory,
    service::{ServiceError, auth::Caller},
};

/// Maximum number of referenced items in an input, and of the answers that contain them.
const MAX_ITEMS: usize = 1_000;
const MAX_ANSWERS: usize = 64;

/// An item of the input to replace.
struct Reference {
    /// Its index in the input.
    at: usize,
    id: String,
    /// The generation, and the item's place in its output.
    target: Option<(Uuid, usize)>,
    /// Whether it is reasoning without its vendor's signature, which stays if nothing is found.
    is_optional: bool,
}

type Places = BTreeMap<Uuid, BTreeSet<usize>>;

/// Replaces items of the input that refer to items of the account's own answers, and reasoning
/// without its vendor's signature. Everything else in the body is validated first, and the caller
/// is confirmed and counted before stored answers are read.
pub(super) async fn resolve<T: Body + Send + 'static>(
    state: &ApiState,
    caller: &mut Caller,
    body: JsonBody<T>,
) -> Result<JsonBody<T>, ApiError> {
    let looking = body.off_thread(|mut body| {
        let (references, places) = find(&mut body.members)?;
        if !references.is_empty() {
            let errors = body.errors();
            if !errors.is_empty() {
                return Err(ServiceError::Invalid(errors).into());
            }
        }
        Ok((body, references, places))
    });
    let (mut body, references, places) = looking.await?;
    if references.is_empty() {
        return Ok(body);
    }
    body.pause_parsing();
    if !places.is_empty()
        && let Some(confirmed) = caller.confirm_for(Ability::GenerateText).await?
    {
        *caller = confirmed;
    }
    let max_bytes = state.settings.max_sdk_body_bytes;
    let items = read(state, caller, &places, max_bytes).await?;
    body.resume_parsing(state, caller.account_id).await?;
    let replacing = body.off_thread(move |mut body| {
        replace(&mut body.members, references, &items, max_bytes)?;
        body.keep_members();
        Ok(body)
    });
    replacing.await
}

/// Finds the references in the input, and replaces those that must be resolved by a message that is
/// always valid.
fn find(members: &mut Map<String, Value>) -> Result<(Vec<Reference>, Places), ApiError> {
    let (mut references, mut places) = (Vec::new(), Places::new());
    let Some(Value::Array(items)) = members.get_mut("input") else {
        return Ok((references, places));
    };
    let mut count = 0;
    for (at, item) in items.iter_mut().enumerate() {
        let is_reference = item["type"] == "item_reference";
        let is_optional = item["type"] == "reasoning" && item["encrypted_content"].is_null();
        if !is_reference && !is_optional {
            continue;
        }
        let id = item["id"].as_str().unwrap_or_default();
        let target = referenced(id)
            .and_then(|(generation, place)| Some((Uuid::try_parse(generation).ok()?, place)));
        if is_optional && target.is_none() {
            continue;
        }
        if let Some((generation, place)) = target {
            count += 1;
            let is_new = !places.contains_key(&generation);
            if count > MAX_ITEMS || is_new && places.len() == MAX_ANSWERS {
                if is_optional {
                    continue;
                }
                let message = format!(
                    "must name at most {MAX_ITEMS} items of earlier answers, of at most \
                     {MAX_ANSWERS} answers"
                );
                let code = FieldCode::OutOfRange;
                return Err(ServiceError::field("input", code, message).into());
            }
            places.entry(generation).or_default().insert(place);
        }
        references.push(Reference {
            at,
            id: id.to_owned(),
            target,
            is_optional,
        });
        if is_reference {
            *item = json!({"role": "user", "content": "x"});
        }
    }
    Ok((references, places))
}

/// Reads the referenced items that exist, at most `max_bytes` of them.
async fn read(
    state: &ApiState,
    caller: &Caller,
    places: &Places,
    max_bytes: usize,
) -> Result<HashMap<(Uuid, usize), (Value, usize)>, ApiError> {
    let ids: Vec<Uuid> = places.keys().copied().collect();
    let (mut items, mut bytes) = (HashMap::new(), 0);
    let kept = memory::current();
    if !ids.is_empty() {
        let reading = state.service.each_answer(caller, &ids, |id, answer| {
            let generation = id.0.simple().to_string();
            let Some(places) = places.get(&id.0).filter(|_| bytes <= max_bytes) else {
                return;
            };
            for (place, item) in answer.response_items(&generation, places) {
                let length = item.to_string().len();
                bytes += length;
                if let Some(kept) = &kept {
                    kept.add(2 * length);
                }
                items.insert((id.0, place), (item, length));
            }
        });
        reading.await?;
    }
    if bytes > max_bytes {
        return Err(ApiError::from_status(StatusCode::PAYLOAD_TOO_LARGE));
    }
    Ok(items)
}

fn replace(
    members: &mut Map<String, Value>,
    references: Vec<Reference>,
    items: &HashMap<(Uuid, usize), (Value, usize)>,
    max_bytes: usize,
) -> Result<(), ApiError> {
    let Some(Value::Array(input)) = members.get_mut("input") else {
        return Ok(());
    };
    let mut bytes = 0;
    for reference in references {
        let found = reference.target.and_then(|target| items.get(&target));
        let place = input.get_mut(reference.at).ok_or_else(ApiError::internal)?;
        match found.filter(|(item, _)| item["id"] == reference.id) {
            Some((item, length)) => {
                bytes += length;
                if bytes > max_bytes {
                    return Err(ApiError::from_status(StatusCode::PAYLOAD_TOO_LARGE));
                }
                *place = item.clone();
            }
            None if reference.is_optional => {}
            None => {
                let message = "refers to no item of an answer of this account";
                let param = format!("input[{}].id", reference.at);
                return Err(ServiceError::field(param, FieldCode::NotAllowed, message).into());
            }
        }
    }
    Ok(())
}
