//! The plan of a request: its rendered prompt, model, price ceiling and provider call. Holds and
//! estimates share this computation.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    inputs::FoundInput,
    template::{Rendered, RenderedPrompt},
};
use crate::{
    catalogue::{ImageModel, Model, ModelKind, SpeechModel, Support, TextModel, VideoModel},
    domain::{
        conversation::{Conversation, Sampling},
        credits::Credits,
        generation::TemplateUse,
        inputs::InputRole,
        pricing::{Ceiling, InputCeiling, PER_THOUSAND, Quality, TextCeiling, UnitCeiling},
        template::PROMPT,
        validate::{FieldCode, FieldError},
    },
    jobs::{Call, ImageWork, TextWork},
    media::{LONGEST_SIDE, MOST_PIXELS, same_shape},
    providers::{DeltaSink, ImageCall, TextCall},
    request::{
        DEFAULT_MAX_TOKENS, GenerationRequest, ImageRequest, Outpaint, Ratio, SIZES, SpeechRequest,
        TextRequest, VideoRequest,
    },
    service::{Result, Service, ServiceError, auth::Caller},
};

/// Default size in pixels.
const DEFAULT_SIZE: (u32, u32) = (1024, 1024);

/// A request that is resolved for one model.
pub(super) struct Plan<'a> {
    pub model: &'a Model,
    /// As stored and shown: rendered from the template if there is one.
    pub prompt: String,
    pub system_prompt: Option<String>,
    pub negative_prompt: Option<String>,
    pub template: Option<TemplateUse>,
    pub parameters: Value,
    pub ceiling: Ceiling,
    pub max_cost: Option<Credits>,
    /// The call that this process runs immediately. `None`: a job, whose row has everything, or the
    /// call is lent to the task that places the hold.
    pub call: Option<Call>,
    pub inputs: Vec<FoundInput>,
    /// Whether it counts as a job: its caller does not wait.
    pub job: bool,
    /// Whether its output is limited only by what the caller can pay for.
    pub unlimited: bool,
}

impl<'a> Plan<'a> {
    fn new(model: &'a Model, prompt: String, parameters: Value, ceiling: Ceiling) -> Self {
        Self {
            model,
            prompt,
            system_prompt: None,
            negative_prompt: None,
            template: None,
            parameters,
            ceiling,
            max_cost: None,
            call: None,
            inputs: Vec::new(),
            job: false,
            unlimited: false,
        }
    }

    pub(super) fn is_streamed(&self) -> bool {
        matches!(&self.call, Some(Call::Text(work)) if work.deltas.is_some())
    }
}

impl Service {
    /// Returns every field that the requested model does not support, or why there is no such
    /// model. Does not apply templates.
    pub fn violations(&self, caller: &Caller, request: &GenerationRequest) -> Vec<FieldError> {
        let chars = request.prompt().chars().count();
        let (wanted, errors) = self.wanted(caller, request);
        let unsupported = match wanted {
            None => self.resolve(caller, request, chars).err(),
            Some(wanted) => self.violations_of_all(caller, request, &wanted, chars),
        };
        [errors, unsupported.unwrap_or_default()].concat()
    }

    /// The model of a request, unless it does not support it. `chars`: length of the prompt as
    /// sent.
    pub(super) fn resolve(
        &self,
        caller: &Caller,
        request: &GenerationRequest,
        chars: usize,
    ) -> Result<&Model, Vec<FieldError>> {
        let modality = request.modality();
        let account = caller.account_default(modality);
        let model = self.catalogue().model_of(request, &account);
        let model = model.map_err(|error| vec![error])?;
        let mut errors = model.violations(request, chars);
        errors.extend(self.catalogue().input_violations(model, request));
        if errors.is_empty() {
            Ok(model)
        } else {
            Err(errors)
        }
    }

    /// `deltas`: where the pieces of a streamed text go.
    pub(super) async fn plan(
        &self,
        caller: &Caller,
        mut request: GenerationRequest,
        rendered: Rendered,
        deltas: Option<DeltaSink>,
    ) -> Result<Plan<'_>> {
        let prompt = match (&rendered, &request) {
            (Ok(rendered), GenerationRequest::Text(_)) => &rendered.prompt,
            _ => request.prompt(),
        };
        let resolved = self.resolve(caller, &request, prompt.chars().count());
        let (rendered, model) = match (rendered, resolved) {
            (Ok(rendered), Ok(model)) => (rendered, model),
            (rendered, resolved) => {
                let mut unsupported = resolved.err().unwrap_or_default();
                if matches!(&rendered, Ok(rendered) if rendered.template.is_some()) {
                    unsupported.iter_mut().for_each(mark_rendered);
                }
                let errors = rendered.err().unwrap_or_default();
                return Err(ServiceError::Invalid([errors, unsupported].concat()));
            }
        };
        let inputs = request.take_inputs();
        // Boxed, because this future is large and few requests have inputs.
        let inputs = if inputs.is_empty() {
            Vec::new()
        } else {
            let finding = self.find_inputs(caller, inputs, model.modality(), model.inputs());
            Box::pin(finding).await?
        };
        match (&model.kind, request) {
            (ModelKind::Text(text), GenerationRequest::Text(request)) => {
                plan_text(model, text, &request, rendered, deltas)
            }
            (ModelKind::Text(text), GenerationRequest::Dialogue(request)) => {
                self.plan_dialogue(caller, model, text, *request, deltas)
                    .await
            }
            (ModelKind::Image(image), GenerationRequest::Image(request)) => {
                plan_image(model, image, request, inputs)
            }
            (ModelKind::Video(video), GenerationRequest::Video(request)) => {
                plan_video(model, video, request, inputs)
            }
            (ModelKind::Speech(speech), GenerationRequest::Audio(request)) => {
                Ok(plan_speech(model, speech, request))
            }
            (_, request) => Err(ServiceError::Internal(format!(
                "{} was resolved for {}",
                model.id,
                request.modality()
            ))),
        }
    }
}

/// Says of a prompt that is too long that its template made it so.
fn mark_rendered(error: &mut FieldError) {
    if error.param == PROMPT && error.code == FieldCode::TooLong {
        error.message = format!("{}, as the template renders it", error.message);
    }
}

fn plan_text<'a>(
    model: &'a Model,
    text: &TextModel,
    request: &TextRequest,
    rendered: RenderedPrompt,
    deltas: Option<DeltaSink>,
) -> Result<Plan<'a>> {
    // A smaller model may lower our default, but not a requested value.
    let max_tokens = request
        .max_tokens
        .unwrap_or(DEFAULT_MAX_TOKENS.min(text.limits.max_tokens))
        .max(text.dialogue.min_output_tokens);
    let mut conversation =
        Conversation::from_prompt(rendered.prompt.clone(), rendered.system_prompt.clone());
    check_context(text, &conversation)?;
    let input_tokens = conversation.bytes() as u64 + u64::from(text.overhead_tokens);
    if conversation.has_blank_system() {
        conversation.system = None;
    }
    let input_bytes = conversation.bytes();
    let call = TextCall {
        model: model.id.clone(),
        conversation: conversation.into(),
        max_tokens,
        max_input_tokens: text.limits.max_input_tokens,
        sampling: Sampling {
            temperature: request.temperature,
            ..Sampling::default()
        },
        ..TextCall::default()
    };
    let ceiling = TextCeiling {
        prices: Arc::clone(&text.prices),
        input_tokens,
        max_tokens,
        min_tokens: text.dialogue.min_output_tokens,
        choices: 1,
        searches: 0,
        search_tokens: 0,
        cache_writes: text.cache_writes,
    };
    Ok(Plan {
        system_prompt: rendered.system_prompt,
        template: rendered.template,
        max_cost: request.max_cost,
        ..plan_call(model, rendered.prompt, call, ceiling, input_bytes, deltas)
    })
}

/// Plans a text call with its output limit. `input_bytes`: the basis of the token estimate if the
/// vendor reports none, images included.
pub(super) fn plan_call(
    model: &Model,
    prompt: String,
    call: TextCall,
    ceiling: TextCeiling,
    input_bytes: usize,
    deltas: Option<DeltaSink>,
) -> Plan<'_> {
    let Sampling {
        temperature,
        top_p,
        stop,
        reasoning: _,
    } = &call.sampling;
    let mut parameters = json!({ "max_tokens": call.max_tokens });
    for (name, value) in [("temperature", temperature), ("top_p", top_p)] {
        if let Some(value) = value {
            parameters[name] = json!(value);
        }
    }
    if !stop.is_empty() {
        parameters["stop"] = json!(stop);
    }
    if call.choices() > 1 {
        parameters["n"] = json!(call.choices());
    }
    let prices = Arc::clone(&ceiling.prices);
    let ceiling = TextCeiling {
        max_tokens: call.max_tokens,
        ..ceiling
    };
    Plan {
        call: Some(Call::Text(Box::new(TextWork {
            call,
            prices,
            deltas,
            receipt: None,
            input_bytes,
        }))),
        ..Plan::new(model, prompt, parameters, Ceiling::Text(ceiling))
    }
}

/// Refuses input that cannot fit the model's context, however its tokens are counted.
pub(super) fn check_context(text: &TextModel, conversation: &Conversation) -> Result<()> {
    match text.overflow(conversation) {
        Some(overflow) => Err(ServiceError::ContextLength(overflow)),
        None => Ok(()),
    }
}

fn plan_image<'a>(
    model: &'a Model,
    image: &ImageModel,
    request: ImageRequest,
    inputs: Vec<FoundInput>,
) -> Result<Plan<'a>> {
    let source = find_source(&inputs);
    let extended = match request.outpaint.zip(source) {
        Some((outpaint, source)) => Some(extended(image, outpaint, source)?),
        None => None,
    };
    // The model may change our defaults.
    let size = extended.or(request.size).or_else(|| {
        let made = image.native(DEFAULT_SIZE).map(|_| DEFAULT_SIZE);
        let servable = || ImageModel::servable(&SIZES, &image.native_sizes);
        made.or_else(|| servable().first().copied())
    });
    let size = size.unwrap_or(DEFAULT_SIZE);
    check_shape(image, size, source)?;
    let quality = request.quality.unwrap_or(Quality::Standard);
    let n = request.n.unwrap_or(1);
    let name = format!("{}x{}", size.0, size.1);
    let price = image.prices.of_image(&name, quality);
    let (Some(per_image), Some(native)) = (price, image.native(size)) else {
        let message = format!("{} has no price for {name}", model.id);
        return Err(ServiceError::Internal(message));
    };
    let price = UnitCeiling {
        parameter: "n",
        units: n.into(),
        other_units: 0,
        supported: None,
        unit_price: per_image,
        per: 1,
        inputs: InputCeiling {
            images: count(&inputs),
            per_image: image.prices.per_input_image.unwrap_or_default(),
            per_million: image.prices.input_image_per_million,
        },
    };
    let mut parameters = json!({"size": name, "quality": quality, "n": n});
    if let Some(style) = request.style {
        parameters["style"] = json!(style);
    }
    if let Some(background) = request.background {
        parameters["background"] = json!(background);
    }
    if let Some(outpaint) = request.outpaint {
        parameters["outpaint"] = json!(outpaint);
    }
    let negative = request.negative_prompt.as_deref();
    let call = ImageCall {
        model: model.id.clone(),
        prompt: image.guided_prompt(&request.prompt, negative, request.style),
        negative_prompt: request.negative_prompt.clone().filter(|text| {
            image.limits.negative_prompt == Support::Native && !text.trim().is_empty()
        }),
        size: native,
        outpaint: request.outpaint,
        quality,
        style: request
            .style
            .filter(|_| image.limits.style == Support::Native),
        background: request.background,
        n,
        inputs: Vec::new(),
    };
    Ok(Plan {
        negative_prompt: request.negative_prompt,
        max_cost: request.max_cost,
        call: Some(Call::Image(ImageWork {
            call,
            size,
            price: price.clone(),
            inputs: Vec::new(),
        })),
        inputs,
        ..Plan::new(model, request.prompt, parameters, Ceiling::Units(price))
    })
}

/// Returns the size of an extended source. `Err`: the model does not make it, or
/// [`crate::media::fit_png`] does not read it.
fn extended(image: &ImageModel, outpaint: Outpaint, source: &FoundInput) -> Result<(u32, u32)> {
    let (width, height) = outpaint.extended(source.size());
    let limits = image.limits.inputs.as_ref();
    let most = limits.map_or(MOST_PIXELS, |limits| limits.max_pixels.min(MOST_PIXELS));
    let pixels = u64::from(width) * u64::from(height);
    if width.max(height) <= LONGEST_SIDE && pixels <= most {
        return Ok((width, height));
    }
    let message = format!(
        "would make a {width}x{height} picture; this model's maximum is {most} pixels, and \
         {LONGEST_SIDE} on a side. Add fewer pixels"
    );
    let param = "parameters.outpaint";
    Err(ServiceError::field(param, FieldCode::OutOfRange, message))
}

/// Refuses a source whose aspect ratio differs from the result's, if the model keeps it.
fn check_shape(
    image: &ImageModel,
    (width, height): (u32, u32),
    source: Option<&FoundInput>,
) -> Result<()> {
    let limits = image.limits.inputs.as_ref();
    let Some(source) = source.filter(|_| limits.is_some_and(|limits| limits.keeps_shape)) else {
        return Ok(());
    };
    let size = source.size();
    if same_shape(size, (width, height)) {
        return Ok(());
    }
    let message = format!(
        "must have the aspect ratio of the source, {}x{}; this model supports the sizes {}",
        size.0,
        size.1,
        image.limits.sizes.join(", ")
    );
    let param = "parameters.size";
    Err(ServiceError::field(param, FieldCode::NotSupported, message))
}

fn find_source(inputs: &[FoundInput]) -> Option<&FoundInput> {
    let mut inputs = inputs.iter();
    inputs.find(|input| input.role == InputRole::Source)
}

fn count(inputs: &[FoundInput]) -> u32 {
    u32::try_from(inputs.len()).unwrap_or(u32::MAX)
}

fn plan_video<'a>(
    model: &'a Model,
    video: &VideoModel,
    request: VideoRequest,
    inputs: Vec<FoundInput>,
) -> Result<Plan<'a>> {
    let duration = request.duration.unwrap_or(video.limits.default_duration);
    let ratio = match find_source(&inputs) {
        Some(source) => ratio_of(video, request.ratio, source)?,
        None => request.ratio.unwrap_or_else(|| video.default_ratio()),
    };
    let parameters = json!({"duration": duration, "ratio": ratio.to_string()});
    let durations = video.limits.durations.iter().copied();
    let ceiling = Ceiling::Units(UnitCeiling {
        parameter: "duration",
        units: duration.into(),
        other_units: 0,
        supported: Some(durations.map(u64::from).collect()),
        unit_price: video.prices.per_second,
        per: 1,
        inputs: InputCeiling {
            images: count(&inputs),
            per_image: video.prices.per_input_image.unwrap_or_default(),
            per_million: None,
        },
    });
    Ok(Plan {
        max_cost: request.max_cost,
        inputs,
        job: true,
        ..Plan::new(model, request.prompt, parameters, ceiling)
    })
}

/// Returns the ratio of a source, which the extended video keeps. `Err`: the model does not make
/// it, or another one is requested.
fn ratio_of(video: &VideoModel, requested: Option<Ratio>, source: &FoundInput) -> Result<Ratio> {
    let (width, height) = source.size();
    let supported = match &video.limits.ratios {
        Some(names) => names.iter().filter_map(|name| Ratio::parse(name)).collect(),
        None => vec![Ratio { width, height }.reduced()],
    };
    let matching = |ratio: &Ratio| same_shape((width, height), (ratio.width, ratio.height));
    let found = supported.into_iter().find(matching);
    match (found, requested) {
        (Some(found), None) => Ok(found),
        (Some(_), Some(requested)) if matching(&requested) => Ok(requested),
        _ => {
            let message =
                format!("must be that of the source, {width}x{height}, which the model must make");
            let code = FieldCode::NotSupported;
            Err(ServiceError::field("parameters.ratio", code, message))
        }
    }
}

fn plan_speech<'a>(model: &'a Model, speech: &SpeechModel, request: SpeechRequest) -> Plan<'a> {
    let voice = request
        .voice
        .unwrap_or_else(|| speech.limits.default_voice.clone());
    let format = request.format.unwrap_or_else(|| speech.default_format());
    let speed = request.speed.unwrap_or(1.0);
    let mut parameters = json!({"voice": voice, "speed": speed, "format": format});
    let mut other_characters = 0;
    if let Some(instructions) = request.instructions {
        other_characters = instructions.chars().count();
        parameters["instructions"] = json!(instructions);
    }
    let characters = request.prompt.chars().count() + other_characters;
    let ceiling = Ceiling::Units(UnitCeiling {
        parameter: "characters",
        units: characters as u64,
        other_units: other_characters as u64,
        supported: None,
        unit_price: speech.prices.per_1000_characters,
        per: PER_THOUSAND,
        inputs: InputCeiling::default(),
    });
    Plan {
        max_cost: request.max_cost,
        job: true,
        ..Plan::new(model, request.prompt, parameters, ceiling)
    }
}
