"""Proposes the launch of a model: its recipe, the flags for the accelerator, and the image of the release."""

from collections.abc import Mapping
from dataclasses import replace

from penstock.catalog.accelerator import Accelerator
from penstock.fleet.release import Release
from penstock.fleet.serving_engines import ENGINES, ServingEngine
from penstock.preflight.facts.situation import Launch, Subject, UnreadModel
from penstock.preflight.launch.images import released_image, rocm_of_image
from penstock.preflight.launch.launch_choices import LaunchChoices
from penstock.preflight.launch.launch_plan import LaunchPlan, plan_launch
from penstock.preflight.launch.recipe import Recipe, cookbook_settings, find_recipe
from penstock.preflight.rules.knowledge import Knowledge


def recipe_of(
    name: str, accelerator: Accelerator, engine: ServingEngine, version: Release, knowledge: Knowledge
) -> Recipe | None:
    """Return vLLM's recipe for the model, or None if there is none. Other engines have no recipes."""
    if engine != "vllm":
        return None
    flags, choices = knowledge.flags["vllm"], knowledge.choices["vllm"]
    return find_recipe(name, accelerator, version, knowledge.recipes, flags, choices)


def propose_launch(
    model: Subject | UnreadModel,
    accelerator: Accelerator,
    engine: ServingEngine,
    version: Release,
    asked: LaunchChoices,
    knowledge: Knowledge,
    recipe: Recipe | None,
) -> LaunchPlan:
    """Propose a launch.

    A launch for vLLM includes the flags of the model's recipe, unless the recipe calls the accelerator unsupported. A
    launch for SGLang includes the flags that SGLang's cookbook lists for the model family.
    """
    followed = None if recipe is not None and recipe.status == "unsupported" else recipe
    plan = plan_launch(model, accelerator, engine, version, asked, followed)
    if ENGINES[engine].server == "sglang":
        choices = knowledge.choices["sglang"]
        plan = plan.with_flags(*cookbook_settings(model.name, version, knowledge.cookbook, choices))
    if engine not in knowledge.images["released"]:
        return replace(plan, image=plan.image and (released_image(engine, version, knowledge.images) or plan.image))
    # Every release that was read was published, so that it has an image.
    read = (str(release) for release in knowledge.flags[ENGINES[engine].server].flags.read)
    return plan.with_published_image((*knowledge.images["released"][engine], *read))


def host_of(launch: Launch, version: Release, stated: Mapping[str, str], knowledge: Knowledge) -> dict[str, str]:
    """Return the facts that the user states of the host, and the ROCm release of the image if the launch uses one."""
    host = dict(stated)
    rocm = rocm_of_image(launch.image, version, knowledge.images)
    if rocm is not None and host.get("install", "docker") == "docker":
        host.setdefault("rocm", rocm)
    return host
