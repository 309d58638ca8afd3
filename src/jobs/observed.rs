//! Providers with metrics and traces around every call.
//!
//! One wrapper per trait keeps this out of adapters and jobs. Spans follow OpenTelemetry's `GenAI`
//! conventions and contain no prompt or result.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use tracing::{Instrument as _, Span, field::Empty};

use crate::{
    domain::generation::Modality,
    observe::{Metrics, ProviderWatch, TRACES},
    providers::{
        DeltaSink, ImageAnswer, ImageCall, ImageProvider, ProviderError, Registry, SpeechAnswer,
        SpeechCall, SpeechProvider, TextAnswer, TextCall, TextProvider, VideoCall, VideoProvider,
        VideoStatus,
    },
};

/// The adapters of a server. They can be replaced while it runs; running calls keep the old ones.
pub type Adapters = Arc<ArcSwap<Registry>>;

/// Wraps the providers of a registry.
pub fn observed(registry: &Registry, metrics: &Metrics) -> (Registry, Adapters) {
    let adapters = Arc::new(ArcSwap::from_pointee(registry.clone()));
    macro_rules! wrapped {
        ($modality:ident, $provider:ident) => {{
            let wrap = |name: &String| -> Arc<dyn $provider> {
                Arc::new(Observed::<dyn $provider> {
                    provider: name.clone(),
                    adapters: Arc::clone(&adapters),
                    by_name: |registry| &registry.$modality,
                    metrics: metrics.clone(),
                })
            };
            let names = registry.$modality.keys();
            names.map(|name| (name.clone(), wrap(name))).collect()
        }};
    }
    let wrapped = Registry {
        text: wrapped!(text, TextProvider),
        image: wrapped!(image, ImageProvider),
        speech: wrapped!(speech, SpeechProvider),
        video: wrapped!(video, VideoProvider),
        ..registry.clone()
    };
    (wrapped, adapters)
}

struct Observed<P: ?Sized> {
    provider: String,
    adapters: Adapters,
    by_name: fn(&Registry) -> &BTreeMap<String, Arc<P>>,
    metrics: Metrics,
}

macro_rules! span {
    ($observed:expr, $operation:literal, $model:expr $(, $($more:tt)+)?) => {
        tracing::info_span!(
            target: TRACES,
            "provider call",
            otel.name = %format_args!(concat!($operation, " {}"), $model),
            otel.kind = "client",
            otel.status_code = Empty,
            "error.type" = Empty,
            gen_ai.operation.name = $operation,
            gen_ai.provider.name = vendor(&$observed.provider),
            gen_ai.request.model = $model
            $(, $($more)+)?
        )
    };
}

impl<P: ?Sized> Observed<P> {
    fn inner(&self) -> Arc<P> {
        // A reload keeps all providers.
        Arc::clone(&(self.by_name)(&self.adapters.load())[&self.provider])
    }

    fn watch(&self, modality: Modality, operation: &'static str) -> ProviderWatch {
        self.metrics
            .provider_call(&self.provider, modality, operation)
    }
}

/// Returns a provider's conventional name, or the configured name if there is none.
fn vendor(provider: &str) -> &str {
    match provider {
        "gemini" => "gcp.gemini",
        other => other,
    }
}

/// Runs a call to its end and records the outcome.
async fn watched<T>(
    watch: ProviderWatch,
    span: Span,
    call: impl Future<Output = Result<T, ProviderError>>,
) -> Result<T, ProviderError> {
    let result = call.instrument(span.clone()).await;
    end(watch, &span, result.as_ref().err());
    result
}

fn end(watch: ProviderWatch, span: &Span, error: Option<&ProviderError>) {
    if let Some(error) = error {
        span.record("error.type", error.kind.as_str());
        span.record("otel.status_code", "ERROR");
    }
    watch.ended(error.map_or("ok", |error| error.kind.as_str()));
}

#[async_trait]
impl TextProvider for Observed<dyn TextProvider> {
    async fn generate(
        &self,
        call: &TextCall,
        deltas: Option<&DeltaSink>,
    ) -> Result<TextAnswer, ProviderError> {
        let span = span!(self, "chat", call.model.as_str(),
            gen_ai.output.type = "text",
            gen_ai.request.max_tokens = call.max_tokens,
            gen_ai.request.temperature = call.sampling.temperature,
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
        );
        let watch = self.watch(Modality::Text, "generate");
        let first_token = deltas.map(|sink| FirstToken {
            observed: self,
            sink,
            since: Instant::now(),
        });
        let inner = self.inner();
        let work = inner.generate(call, deltas);
        let result = work.instrument(span.clone()).await;
        drop(first_token);
        if let Ok(answer) = &result {
            for (field, count) in [
                ("gen_ai.usage.input_tokens", answer.usage.input),
                ("gen_ai.usage.output_tokens", answer.usage.output),
            ] {
                if let Some(count) = count.and_then(|n| i64::try_from(n).ok()) {
                    span.record(field, count);
                }
            }
        }
        end(watch, &span, result.as_ref().err());
        result
    }

    async fn count_input(&self, call: &TextCall) -> Result<u64, ProviderError> {
        let span = span!(self, "count_tokens", call.model.as_str());
        let watch = self.watch(Modality::Text, "count_tokens");
        watched(watch, span, self.inner().count_input(call)).await
    }

    fn may_hide_reasoning(&self, call: &TextCall) -> bool {
        self.inner().may_hide_reasoning(call)
    }
}

/// Records the time to the first token, also of a cancelled stream.
struct FirstToken<'a> {
    observed: &'a Observed<dyn TextProvider>,
    sink: &'a DeltaSink,
    since: Instant,
}

impl Drop for FirstToken<'_> {
    fn drop(&mut self) {
        if let Some(at) = self.sink.first_at() {
            let after = at.saturating_duration_since(self.since);
            let observed = self.observed;
            observed.metrics.first_token(&observed.provider, after);
        }
    }
}

#[async_trait]
impl ImageProvider for Observed<dyn ImageProvider> {
    async fn generate(&self, call: &ImageCall) -> Result<ImageAnswer, ProviderError> {
        let span = span!(self, "generate_content", call.model.as_str(),
            gen_ai.output.type = "image",
            gen_ai.request.choice.count = call.n,
        );
        let watch = self.watch(Modality::Image, "generate");
        watched(watch, span, self.inner().generate(call)).await
    }
}

#[async_trait]
impl SpeechProvider for Observed<dyn SpeechProvider> {
    async fn generate(&self, call: &SpeechCall) -> Result<SpeechAnswer, ProviderError> {
        let span = span!(self, "generate_content", call.model.as_str(),
            gen_ai.output.type = "speech",
        );
        let watch = self.watch(Modality::Audio, "generate");
        watched(watch, span, self.inner().generate(call)).await
    }

    fn has_model(&self, model: &str) -> bool {
        self.inner().has_model(model)
    }
}

#[async_trait]
impl VideoProvider for Observed<dyn VideoProvider> {
    async fn submit(&self, call: &VideoCall) -> Result<String, ProviderError> {
        let span = span!(self, "generate_content", call.model.as_str(),
            gen_ai.output.type = "video",
        );
        let watch = self.watch(Modality::Video, "submit");
        watched(watch, span, self.inner().submit(call)).await
    }

    async fn poll(&self, task: &str, call: &VideoCall) -> Result<VideoStatus, ProviderError> {
        let span = span!(self, "poll", call.model.as_str());
        let watch = self.watch(Modality::Video, "poll");
        let result = self.inner().poll(task, call).instrument(span.clone()).await;
        match &result {
            Ok(VideoStatus::Gone) => watch.ended("gone"),
            // The poll succeeded; the task it reports on failed.
            Ok(VideoStatus::Failed(error)) | Err(error) => end(watch, &span, Some(error)),
            Ok(VideoStatus::Running { .. } | VideoStatus::Done(_)) => end(watch, &span, None),
        }
        result
    }

    fn poll_needs_inputs(&self, task: &str) -> bool {
        self.inner().poll_needs_inputs(task)
    }

    fn poll_interval(&self) -> Option<Duration> {
        self.inner().poll_interval()
    }

    async fn cancel(&self, task: &str) -> Result<(), ProviderError> {
        let span = span!(self, "cancel", "task");
        let watch = self.watch(Modality::Video, "cancel");
        watched(watch, span, self.inner().cancel(task)).await
    }

    fn has_model(&self, model: &str) -> bool {
        self.inner().has_model(model)
    }
}
