//! The operations of the API that the console calls.

use http::Method;

#[derive(Debug, Clone, Copy)]
pub struct Operation {
    pub method: &'static Method,
    /// The path in openapi.json.
    pub path: &'static str,
}

macro_rules! operations {
    ($($name:ident = $method:ident $path:literal;)+) => {
        $(pub const $name: Operation = Operation { method: &Method::$method, path: $path };)+

        pub const ALL: &[Operation] = &[$($name),+];
    };
}

operations! {
    LOG_IN = POST "/v1/auth/login";
    LOG_OUT = POST "/v1/auth/logout";
    ME = GET "/v1/auth/me";
    CHANGE_PASSWORD = PATCH "/v1/auth/password";
    ACCOUNT = GET "/v1/account";
    CHANGE_ACCOUNT = PATCH "/v1/account";
    BALANCE = GET "/v1/credits/balance";
    LEDGER = GET "/v1/credits/ledger";
    USAGE = GET "/v1/credits/usage";
    ESTIMATE = POST "/v1/credits/estimate";
    MODELS = GET "/v1/models";
    MODEL_STATS = GET "/v1/models/stats";
    PROVIDERS = GET "/v1/providers";
    GENERATE_TEXT = POST "/v1/generate/text";
    GENERATE_IMAGE = POST "/v1/generate/image";
    GENERATE_VIDEO = POST "/v1/generate/video";
    GENERATE_AUDIO = POST "/v1/generate/audio";
    UPLOAD = POST "/v1/uploads";
    HISTORY = GET "/v1/generate/history";
    GENERATION = GET "/v1/generate/{uuid}";
    CANCEL = POST "/v1/generate/{uuid}/cancel";
    DELETE_GENERATION = DELETE "/v1/generate/{uuid}";
    KEYS = GET "/v1/api-keys";
    KEY = GET "/v1/api-keys/{id}";
    CREATE_KEY = POST "/v1/api-keys";
    REVOKE_KEY = DELETE "/v1/api-keys/{id}";
    TEMPLATES = GET "/v1/templates";
    TEMPLATE = GET "/v1/templates/{id}";
    CREATE_TEMPLATE = POST "/v1/templates";
    PREVIEW_TEMPLATE = POST "/v1/templates/preview";
    REPLACE_TEMPLATE = PUT "/v1/templates/{id}";
    DELETE_TEMPLATE = DELETE "/v1/templates/{id}";
    ACCOUNTS = GET "/v1/admin/accounts";
    ADMIN_ACCOUNT = GET "/v1/admin/accounts/{id}";
    CREATE_ACCOUNT = POST "/v1/admin/accounts";
    CHANGE_CUSTOMER = PATCH "/v1/admin/accounts/{id}";
    DELETE_CUSTOMER = DELETE "/v1/admin/accounts/{id}";
    REPLACE_KEY = PUT "/v1/admin/accounts/{id}/api-keys/{key}";
    REVOKE_CUSTOMERS_KEY = DELETE "/v1/admin/accounts/{id}/api-keys/{key}";
    REDELIVER_FOR_CUSTOMER = POST "/v1/admin/accounts/{id}/deliveries/{delivery}/redeliver";
    MOVE_CREDITS = POST "/v1/admin/accounts/{id}/credits";
    SUSPEND = POST "/v1/admin/accounts/{id}/suspend";
    RESUME = POST "/v1/admin/accounts/{id}/resume";
    PROVIDERS_HEALTH = GET "/v1/admin/providers";
    JOBS = GET "/v1/admin/jobs";
    SPENDING = GET "/v1/admin/usage";
    AUDIT = GET "/v1/admin/audit";
    WEBHOOKS = GET "/v1/webhooks";
    WEBHOOK = GET "/v1/webhooks/{id}";
    CREATE_WEBHOOK = POST "/v1/webhooks";
    DELETE_WEBHOOK = DELETE "/v1/webhooks/{id}";
    DELIVERIES = GET "/v1/webhooks/{id}/deliveries";
    REDELIVER = POST "/v1/webhooks/{id}/deliveries/{delivery}/redeliver";
}
