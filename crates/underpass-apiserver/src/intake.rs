//! From a decoded body to an object of this resource: of its kind, at its place, with fields of its types.
//!
//! The checks say what is wrong in a sentence; whether that is a bad request or a bad patch is for the caller to say.

use std::sync::LazyLock;

use serde_json::{Value, json};
use underpass_builtins::shape;
use underpass_schema::{ErrorKind, FieldError, Schema, Type, Validator};

use crate::decode::Decoded;
use crate::metadata;
use crate::object::{self, Object};
use crate::registry::{Origin, Resource, object_metadata};
use crate::request::FieldValidation;
use crate::status::ApiError;
use crate::write::Call;

impl Call<'_> {
    /// The body of a create or an update; unknown and duplicate fields are dealt with as asked.
    pub(crate) fn intake(&self, decoded: Decoded, mode: FieldValidation) -> Result<(Object, Vec<String>), ApiError> {
        let Decoded { value: mut object, duplicates } = decoded;
        self.check_kind(&mut object).map_err(ApiError::bad_request)?;
        let mut warnings = self.resource.read_fields(&mut object, duplicates, mode).map_err(|why| {
            let (kind, version) = (&self.resource.kind, &self.resource.version);
            ApiError::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
        })?;
        self.check_place(&mut object)?;
        warnings.extend(metadata::drop_repeated_owners(&mut object));
        Ok((object, warnings))
    }

    /// apiVersion and kind must be those of the request; what is missing is filled in.
    pub(crate) fn check_kind(&self, object: &mut Object) -> Result<(), String> {
        if !object.is_object() || object.get("metadata").is_some_and(|m| !m.is_object() && !m.is_null()) {
            return Err("the body must be an object, and its metadata too".to_owned());
        }
        for (field, what, expected) in
            [("apiVersion", "API version", self.resource.api_version()), ("kind", "kind", self.resource.kind.clone())]
        {
            match object.get(field) {
                None | Some(Value::Null) => object[field] = json!(expected),
                Some(Value::String(given)) if given.is_empty() => object[field] = json!(expected),
                Some(Value::String(given)) if *given == expected => {}
                Some(given) => {
                    let given = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
                    return Err(format!(
                        "the {what} in the data ({given}) does not match the expected {what} ({expected})"
                    ));
                }
            }
        }
        Ok(())
    }

    /// The name must be that of the request; the namespace too, and may be left out.
    pub(crate) fn check_place(&self, object: &mut Object) -> Result<(), ApiError> {
        self.check_name(object)?;
        self.check_namespace(object)
    }

    pub(crate) fn check_name(&self, object: &Object) -> Result<(), ApiError> {
        let wanted = &self.target.name;
        let why = match object::name(object) {
            given if wanted.is_empty() || given == wanted => return Ok(()),
            "" => format!("the name of the object ({wanted} based on URL) was undeterminable: name must be provided"),
            given => format!("the name of the object ({given}) does not match the name on the URL ({wanted})"),
        };
        Err(ApiError::bad_request(why))
    }

    pub(crate) fn check_namespace(&self, object: &mut Object) -> Result<(), ApiError> {
        if !self.resource.namespaced {
            object::metadata_mut(object).remove("namespace");
            return Ok(());
        }
        match object::namespace(object) {
            "" => drop(object::metadata_mut(object).insert("namespace".to_owned(), json!(self.target.namespace))),
            given if given != self.target.namespace => {
                return Err(ApiError::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Resource {
    /// [`Self::clean`], and every value of the type that Kubernetes could read.
    pub(crate) fn read_fields(
        &self,
        object: &mut Object,
        duplicates: Vec<String>,
        mode: FieldValidation,
    ) -> Result<Vec<String>, String> {
        let warnings = self.clean(object, duplicates, mode)?;
        self.check_types(object)?;
        Ok(warnings)
    }

    /// Settles nulls and drops unknown fields, and says so or refuses, as the client asked.
    pub(crate) fn clean(
        &self,
        object: &mut Object,
        duplicates: Vec<String>,
        mode: FieldValidation,
    ) -> Result<Vec<String>, String> {
        match &self.origin {
            Origin::Builtin(builtin) => shape::settle_nulls(builtin.schema(), object),
            Origin::Custom(_) => {
                object.get_mut("metadata").into_iter().for_each(|m| shape::settle_nulls(object_metadata(), m));
            }
        }
        let unknown = self.schema().prune(object).into_iter().map(|field| format!("unknown field {field:?}"));
        // Kubernetes' own tests know the order: a typed object is decoded from JSON in one go; YAML is made into JSON before, and a
        // custom resource pruned after it was read.
        let in_one_go =
            matches!(self.origin, Origin::Builtin(_)) && !duplicates.iter().any(|text| text.starts_with("yaml"));
        let found: Vec<String> = match in_one_go {
            true => unknown.chain(duplicates).collect(),
            false => duplicates.into_iter().chain(unknown).collect(),
        };
        match mode {
            FieldValidation::Strict if !found.is_empty() => Err(format!("strict decoding error: {}", found.join(", "))),
            FieldValidation::Ignore => Ok(Vec::new()),
            _ => Ok(found),
        }
    }

    /// Of a custom resource only the metadata has types of Kubernetes; the rest is for validation to judge.
    fn check_types(&self, object: &Object) -> Result<(), String> {
        static METADATA: LazyLock<Validator> = LazyLock::new(|| {
            let properties = [("metadata".to_owned(), object_metadata().clone())].into();
            Validator::new(Schema { type_: Some(Type::Object), properties, ..Schema::default() })
        });
        let validator = match &self.origin {
            Origin::Builtin(builtin) => builtin.validator(),
            Origin::Custom(_) => &METADATA,
        };
        match validator.validate(object).iter().find(|error| is_unreadable(error)) {
            Some(error) => Err(error.to_string()),
            None => Ok(()),
        }
    }
}

/// A number that does not fit is as unreadable as a text in its place.
fn is_unreadable(error: &FieldError) -> bool {
    error.kind == ErrorKind::TypeInvalid || error.detail.contains(" in body must be of type ")
}
