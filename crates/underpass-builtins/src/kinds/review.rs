//! Kinds that are asked, not stored.

use k8s_openapi::api::{authentication::v1 as authentication, authorization::v1 as authorization};

use crate::Review;

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// Who am I, what may I do, is this token good.
pub fn reviews() -> &'static [Review] {
    const ALL: &[Review] = &[
        Review {
            group: AUTHENTICATION,
            version: "v1",
            kind: "SelfSubjectReview",
            plural: "selfsubjectreviews",
            singular: "selfsubjectreview",
            definition: "io.k8s.api.authentication.v1.SelfSubjectReview",
            define: |generator| {
                generator.subschema_for::<authentication::SelfSubjectReview>();
            },
        },
        Review {
            group: AUTHENTICATION,
            version: "v1",
            kind: "TokenReview",
            plural: "tokenreviews",
            singular: "tokenreview",
            definition: "io.k8s.api.authentication.v1.TokenReview",
            define: |generator| {
                generator.subschema_for::<authentication::TokenReview>();
            },
        },
        Review {
            group: AUTHORIZATION,
            version: "v1",
            kind: "SelfSubjectAccessReview",
            plural: "selfsubjectaccessreviews",
            singular: "selfsubjectaccessreview",
            definition: "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
            define: |generator| {
                generator.subschema_for::<authorization::SelfSubjectAccessReview>();
            },
        },
        Review {
            group: AUTHORIZATION,
            version: "v1",
            kind: "SelfSubjectRulesReview",
            plural: "selfsubjectrulesreviews",
            singular: "selfsubjectrulesreview",
            definition: "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
            define: |generator| {
                generator.subschema_for::<authorization::SelfSubjectRulesReview>();
            },
        },
    ];
    ALL
}
