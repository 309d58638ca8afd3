//! Balance and ledger of the caller's account.

use super::{Service, ServiceError, auth::Caller};
use crate::{
    domain::{
        ids::GenerationId,
        page::{Page, PageRequest},
    },
    store::credits::{Balance, LedgerEntry},
};

impl Service {
    pub async fn balance(&self, caller: &Caller) -> Result<Balance, ServiceError> {
        Ok(self.0.store.balance(caller.account_id).await?)
    }

    pub async fn ledger(
        &self,
        caller: &Caller,
        kind: Option<&str>,
        generation: Option<GenerationId>,
        page: &PageRequest,
    ) -> Result<Page<LedgerEntry>, ServiceError> {
        let entries = self
            .0
            .store
            .ledger(caller.account_id, kind, generation, page)
            .await?;
        Ok(entries)
    }
}
