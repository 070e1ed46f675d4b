//! The differences that stay, each with its reason. One that is no longer found fails the test, so that this list stays short.

use super::compare::Difference;

#[derive(Debug)]
#[allow(dead_code, reason = "read by people")]
pub(crate) struct Known {
    /// What the request's description contains.
    about: &'static str,
    /// How the place begins, and what it contains after that.
    below: &'static str,
    holding: &'static str,
    why: &'static str,
}

const fn known(about: &'static str, below: &'static str, holding: &'static str, why: &'static str) -> Known {
    Known { about, below, holding, why }
}

const OWN_WORDS: &str = "descriptions are in our own words";
const LIKE_BUILTIN: &str = "custom resources are described here as fully as Kubernetes' own kinds";
const ITS_MISTAKE: &str = "it answers 500 for what the client asked wrongly";
const WHOLE_OBJECT: &str =
    "it repeats the whole object, and names none; here the patch is repeated, and its object named";
const OTHER_ORDER: &str = "here the kind and the method are looked at before the content";

pub(crate) const KNOWN: &[Known] = &[
    known("GET /openapi", "", "/description", OWN_WORDS),
    known(";as=Table;", "/body/columnDefinitions", "/description", OWN_WORDS),
    known("GET /openapi/v3", "/body/info", "", "title and version are the server's own"),
    known("GET /openapi/v3", "/body/components/securitySchemes", "", "here it is said how clients prove who they are"),
    known(
        "GET /openapi/v3",
        "/body/components/schemas/io.k8s.",
        "",
        "Kubernetes' own kinds are those of 1.36 here, and of 1.34 there",
    ),
    known(
        "GET /openapi",
        "/body/paths",
        "/parameters",
        "each operation names its parameters here, there they are shared",
    ),
    known("GET /openapi", "/body/paths", "/requestBody", LIKE_BUILTIN),
    known("GET /openapi", "/body/paths", "/responses/201", LIKE_BUILTIN),
    known("GET /openapi", "/body/paths", "stream=watch", LIKE_BUILTIN),
    known("GET /openapi/v2", "/body/paths", "/produces", LIKE_BUILTIN),
    known("GET /openapi/v2", "/body/paths", "/consumes", "the types of patches are named in another order"),
    known(
        "/customresourcedefinitions/",
        "/body/metadata/finalizers",
        "",
        "here a definition is held from the moment it is served",
    ),
    known(";as=PartialObjectMetadata;", "/body/message", "", "it adds the name of a Go type"),
    known("g=meta.k8s.io of one object", "/code", "", ITS_MISTAKE),
    known("g=meta.k8s.io of one object", "/body", "", ITS_MISTAKE),
    known(
        "/status merge-patch+json",
        "/body/details/causes",
        "/message",
        "where an update is refused, its message names the last field only",
    ),
    known("?fieldValidation=Strict merge-patch+json", "/body/details", "", WHOLE_OBJECT),
    known("?fieldValidation=Strict merge-patch+json", "/body/message", "", WHOLE_OBJECT),
    known("?fieldValidation=Strict json-patch+json", "/body/details", "", WHOLE_OBJECT),
    known("?fieldValidation=Strict json-patch+json", "/body/message", "", WHOLE_OBJECT),
    known(" json-patch+json", "/body/details", "", "here a failed operation is named"),
    known(" json-patch+json", "/body/message", "", "here a failed operation is named"),
    known(" merge-patch+json", "/body/details/causes", "", "it names a wrong label twice"),
    known("fieldManager=of-another-kind", "", "", OTHER_ORDER),
    known("fieldManager=posted-to-an-object", "", "", OTHER_ORDER),
];

/// The entry that explains it.
pub(crate) fn reason(difference: &Difference) -> Option<usize> {
    KNOWN.iter().position(|known| {
        let holds = difference.place.strip_prefix(known.below).is_some_and(|rest| rest.contains(known.holding));
        holds && difference.what.contains(known.about)
    })
}
