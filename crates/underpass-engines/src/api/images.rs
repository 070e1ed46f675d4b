//! Images. An engine says "200 OK" before it begins and tells of a failure in the stream, so that success is looked at, not believed.

use std::time::Duration;

use bollard::body_full;
use bollard::errors::Error;
use bollard::models::{BuildInfo, ImageInspect, ImageSummary};
use bollard::query_parameters::{
    BuildImageOptions, CreateImageOptions, ImportImageOptions, ListImagesOptions, RemoveImageOptions,
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use tokio::time::{sleep, timeout};

use super::answers::translate;
use super::output::Output;
use super::{ACT, ASK, Connection, IMAGE, PULL, gone_is_fine, if_found, label_filter};
use crate::container::Image;
use crate::engine::{BuildRequest, EngineError};

/// At an engine whose build has failed: for longer than one takes to end, and often enough to miss none that comes right back.
const LOOKS: usize = 20;
const LOOK: Duration = Duration::from_millis(100);

impl Connection {
    pub(crate) async fn find_image(&self, reference: &str) -> Result<Option<Image>, EngineError> {
        Ok(if_found(self.within(ASK, self.docker.inspect_image(reference)).await)?.map(describe))
    }

    pub(crate) async fn load_image(&self, archive: Bytes) -> Result<(), EngineError> {
        let options = ImportImageOptions { quiet: true, ..ImportImageOptions::default() };
        let steps = self.docker.import_image(options, body_full(archive), None);
        self.within(IMAGE, steps.try_for_each(|_| async { Ok(()) })).await
    }

    pub(crate) async fn pull_image(&self, reference: &str) -> Result<(), EngineError> {
        let options = CreateImageOptions { from_image: Some(with_tag(reference)), ..CreateImageOptions::default() };
        let steps = self.docker.create_image(Some(options), None, None);
        self.within(PULL, steps.try_for_each(|_| async { Ok(()) })).await?;
        match self.find_image(reference).await? {
            Some(_) => Ok(()),
            None => Err(EngineError::Refused(format!("it said that it pulled {reference}, and does not have it"))),
        }
    }

    pub(crate) async fn build_image(&self, request: BuildRequest) -> Result<(), EngineError> {
        let BuildRequest { reference, context, labels } = request;
        let options = BuildImageOptions {
            dockerfile: "Dockerfile".to_owned(),
            t: Some(reference.clone()),
            labels: Some(labels.into_iter().collect()),
            rm: true,
            forcerm: true,
            ..BuildImageOptions::default()
        };
        let mut output = Output::default();
        let building = async {
            let mut steps = std::pin::pin!(self.docker.build_image(options, None, Some(body_full(context))));
            while let Some(step) = steps.next().await {
                output.push(&step_text(step?));
            }
            Ok(())
        };
        let ended = timeout(IMAGE, building).await;
        match ended {
            Err(_) => return Err(self.too_slow(IMAGE)),
            Ok(Err(Error::DockerStreamError { error } | Error::DockerResponseServerError { message: error, .. })) => {
                output.push(&error);
                self.stays().await?;
                return Err(EngineError::BuildFailed { reference, output: output.into_text() });
            }
            Ok(Err(error)) => return Err(translate(&self.description, &error)),
            Ok(Ok(())) => {}
        }
        match self.find_image(&reference).await? {
            Some(_) => Ok(()),
            None => Err(EngineError::BuildFailed { reference, output: output.into_text() }),
        }
    }

    /// An engine that ends kills its builds, and tells of each that it failed; one that stays has meant it.
    async fn stays(&self) -> Result<(), EngineError> {
        for _ in 0..LOOKS {
            sleep(LOOK).await;
            self.health().await?;
        }
        Ok(())
    }

    pub(crate) async fn list_images(&self, labels: &[(&str, &str)]) -> Result<Vec<Image>, EngineError> {
        let options = ListImagesOptions { filters: label_filter(labels), ..ListImagesOptions::default() };
        let listed = self.within(ASK, self.docker.list_images(Some(options))).await?;
        Ok(listed.into_iter().map(summarize).collect())
    }

    pub(crate) async fn remove_image(&self, id: &str) -> Result<(), EngineError> {
        let removed = self.within(ACT, self.docker.remove_image(id, None::<RemoveImageOptions>, None)).await;
        gone_is_fine(removed.map(|_| ()))
    }
}

/// Without a tag or a digest, Docker pulls every tag that there is.
fn with_tag(reference: &str) -> String {
    let name = reference.rsplit('/').next().unwrap_or(reference);
    if name.contains([':', '@']) { reference.to_owned() } else { format!("{reference}:latest") }
}

fn step_text(step: BuildInfo) -> String {
    step.stream.or_else(|| Some(step.status? + "\n")).unwrap_or_default()
}

fn describe(image: ImageInspect) -> Image {
    Image {
        id: image.id.unwrap_or_default(),
        references: image.repo_tags.unwrap_or_default(),
        labels: image.config.and_then(|config| config.labels).unwrap_or_default().into_iter().collect(),
    }
}

fn summarize(image: ImageSummary) -> Image {
    Image { id: image.id, references: image.repo_tags, labels: image.labels.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_names_one_image() {
        assert_eq!(with_tag("debian"), "debian:latest");
        assert_eq!(with_tag("host:5000/debian"), "host:5000/debian:latest");
        assert_eq!(with_tag("host:5000/debian:12"), "host:5000/debian:12");
        assert_eq!(with_tag("debian@sha256:00"), "debian@sha256:00");
    }
}
