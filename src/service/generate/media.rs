//! Image, video and speech requests.

use std::sync::Arc;

use super::{IdempotentRequest, Plan, Submitted, media_plan::ImagePlan};
use crate::{
    domain::{
        catalogue::{ImageModel, Model, ModelKind, SpeechModel, VideoModel},
        generation::Modality,
        request::{ImageRequest, SpeechRequest, VideoRequest},
        validate::FieldError,
    },
    jobs::ImageJob,
    service::{Service, ServiceError, auth::Caller},
    store::generations::HoldOutcome,
};

macro_rules! resolver {
    ($(#[$doc:meta])* $name:ident, $request:ty, $modality:ident, $kind:ident, $model:ty) => {
        $(#[$doc])*
        pub(super) fn $name(
            &self,
            caller: &Caller,
            request: &$request,
        ) -> Result<(&Model, &$model), Vec<FieldError>> {
            let model = self.resolve_model(caller, Modality::$modality, &request.target)?;
            let ModelKind::$kind(kind) = &model.kind else {
                return Err(Vec::new());
            };
            match kind.violations(request) {
                none if none.is_empty() => Ok((model, kind)),
                errors => Err(errors),
            }
        }
    };
}

impl Service {
    resolver!(
        /// The model that a request means, unless it refuses it.
        resolve_image, ImageRequest, Image, Image, ImageModel
    );
    resolver!(
        /// The model that a request means, unless it refuses it.
        resolve_video, VideoRequest, Video, Video, VideoModel
    );
    resolver!(
        /// The model that a request means, unless it refuses it.
        resolve_speech, SpeechRequest, Audio, Speech, SpeechModel
    );

    /// Holds the price and starts the work.
    pub(super) async fn begin_image(
        &self,
        caller: &Caller,
        request: ImageRequest,
        keyed: Option<&IdempotentRequest>,
    ) -> Result<Submitted, ServiceError> {
        if let Some(id) = self.startable(caller, keyed).await? {
            return Ok(Submitted::Replay(id));
        }
        let ImagePlan {
            plan,
            call,
            size,
            price,
        } = self.plan_image(caller, request)?;
        let new = self.prepare(caller, &plan, keyed, false).await?;
        let seat = match self.seat(caller, &plan, keyed).await? {
            Ok(seat) => seat,
            Err(id) => return Ok(Submitted::Replay(id)),
        };
        let model = plan.model;
        let provider = self.0.providers.image.get(&model.provider);
        let provider = provider
            .ok_or_else(|| ServiceError::Internal(format!("no adapter for {}", model.provider)))?;
        let job = ImageJob {
            new,
            call,
            size,
            provider: Arc::clone(provider),
            price,
            seat,
        };
        let started = self.0.runner.start_image(job).await;
        self.begun(caller, started, &plan.ceiling, keyed).await
    }

    /// Holds the price and queues the work.
    pub(super) async fn begin_video(
        &self,
        caller: &Caller,
        request: VideoRequest,
        keyed: Option<&IdempotentRequest>,
    ) -> Result<Submitted, ServiceError> {
        if let Some(id) = self.startable(caller, keyed).await? {
            return Ok(Submitted::Replay(id));
        }
        let plan = self.plan_video(caller, request)?;
        self.queue(caller, plan, keyed).await
    }

    /// Holds the price and queues the work.
    pub(super) async fn begin_speech(
        &self,
        caller: &Caller,
        request: SpeechRequest,
        keyed: Option<&IdempotentRequest>,
    ) -> Result<Submitted, ServiceError> {
        if let Some(id) = self.startable(caller, keyed).await? {
            return Ok(Submitted::Replay(id));
        }
        let plan = self.plan_speech(caller, request)?;
        self.queue(caller, plan, keyed).await
    }

    /// What the key made before; otherwise whether new work is taken at all.
    async fn startable(
        &self,
        caller: &Caller,
        keyed: Option<&IdempotentRequest>,
    ) -> Result<Option<crate::domain::ids::GenerationId>, ServiceError> {
        let replayed = self.replayed(caller, keyed).await?;
        if replayed.is_none() && self.is_draining() {
            return Err(ServiceError::ShuttingDown);
        }
        Ok(replayed)
    }

    async fn queue(
        &self,
        caller: &Caller,
        plan: Plan<'_>,
        keyed: Option<&IdempotentRequest>,
    ) -> Result<Submitted, ServiceError> {
        let new = self.prepare(caller, &plan, keyed, true).await?;
        let mut record = new.record();
        // What the answer says; a lookup tells while it waits for a free worker.
        record.status = crate::domain::generation::Status::Processing;
        match self.0.runner.start_job(new).await? {
            HoldOutcome::Held => Ok(Submitted::Queued(Box::new(record))),
            refused => self.refused(caller, refused, &plan.ceiling, keyed).await,
        }
    }
}
