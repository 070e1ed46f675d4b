//! Private folders of containers.

use bollard::models::VolumeCreateRequest;
use bollard::query_parameters::{ListVolumesOptions, RemoveVolumeOptions};

use super::{ACT, ASK, Connection, gone_is_fine, label_filter};
use crate::container::{ContainerRequest, Volume};
use crate::engine::EngineError;

impl Connection {
    /// One of the same name is it: the engines answer as if they had made it.
    pub(super) async fn create_volume(&self, request: &ContainerRequest) -> Result<(), EngineError> {
        let labels = self.maker.labels().into_iter().chain(request.labels.clone()).collect();
        let volume = VolumeCreateRequest {
            name: Some(request.name.clone()),
            labels: Some(labels),
            ..VolumeCreateRequest::default()
        };
        self.within(ACT, self.docker.create_volume(volume)).await.map(drop)
    }

    pub(crate) async fn list_volumes(&self, labels: &[(&str, &str)]) -> Result<Vec<Volume>, EngineError> {
        let options = ListVolumesOptions { filters: label_filter(labels) };
        let listed = self.within(ASK, self.docker.list_volumes(Some(options))).await?;
        let volume =
            |volume: bollard::models::Volume| Volume { name: volume.name, labels: volume.labels.into_iter().collect() };
        let volumes = listed.volumes.unwrap_or_default().into_iter().map(volume);
        // Podman lists whatever has one of the labels.
        let has_all =
            |volume: &Volume| labels.iter().all(|(key, value)| volume.labels.get(*key).is_some_and(|v| v == value));
        Ok(volumes.filter(has_all).collect())
    }

    pub(crate) async fn remove_volume(&self, name: &str) -> Result<(), EngineError> {
        gone_is_fine(self.within(ACT, self.docker.remove_volume(name, None::<RemoveVolumeOptions>)).await)
    }
}
