//! Writes that the server makes by itself: for namespaces, definitions and garbage collection.

use std::sync::Arc;

use crate::api::Api;
use crate::delete::{DeleteOptions, Propagation};
use crate::object::{self, Object};
use crate::registry::Resource;
use crate::request::{FieldValidation, Target, WriteOptions};
use crate::status::ApiError;
use crate::write::{Call, Proposal};

pub(crate) fn options(manager: &str) -> WriteOptions {
    WriteOptions {
        dry_run: false,
        field_manager: manager.to_owned(),
        field_validation: FieldValidation::Ignore,
        force: true,
    }
}

/// The path that names an object.
pub(crate) fn target_of(resource: &Resource, object: &Object) -> Target {
    Target {
        group: resource.group.clone(),
        version: resource.version.clone(),
        plural: resource.plural.clone(),
        namespace: object::namespace(object).to_owned(),
        name: object::name(object).to_owned(),
        ..Target::default()
    }
}

pub(crate) fn call<'a>(api: &'a Api, target: &'a Target) -> Result<Call<'a>, ApiError> {
    let resource = api.registry.load().find(&target.group, &target.version, &target.plural);
    Ok(Call { api, resource: resource.ok_or_else(ApiError::no_such_path)?, target })
}

/// Changes an object if it is there.
pub(crate) async fn change(
    api: &Api,
    target: &Target,
    manager: &str,
    mut edit: impl FnMut(&mut Object),
) -> Result<(), ApiError> {
    let (call, options) = (call(api, target)?, options(manager));
    let changed = call.change(&options, |live| {
        let mut object = live.clone();
        edit(&mut object);
        Ok(Proposal::Update(object))
    });
    gone_is_fine(changed.await.map(drop))
}

/// Deletes an object, unless that happens already.
pub(crate) async fn delete(api: &Api, resource: &Arc<Resource>, object: &Object) -> Result<(), ApiError> {
    if object::is_being_deleted(object) {
        return Ok(());
    }
    let target = target_of(resource, object);
    let call = Call { api, resource: resource.clone(), target: &target };
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    gone_is_fine(call.delete(&options).await.map(drop))
}

/// What should be changed or deleted and is not there needs nothing.
pub(crate) fn gone_is_fine(result: Result<(), ApiError>) -> Result<(), ApiError> {
    match result {
        Err(error) if error.code == http::StatusCode::NOT_FOUND => Ok(()),
        other => other,
    }
}
