"""Checks one deployment before its launch: rules, obstacles, predicted kernels, memory and launch plan."""

from dataclasses import replace

from penstock.performance.memory.budget import DeviceRoom
from penstock.preflight.facts.derive_facts import derive_facts
from penstock.preflight.facts.situation import Launch, Situation
from penstock.preflight.launch.flag_values import check_values, requested_backend
from penstock.preflight.launch.images import newest_rocm
from penstock.preflight.launch.online_quantisation import as_launched
from penstock.preflight.launch.propose_launch import host_of, propose_launch, recipe_of
from penstock.preflight.launch.release_flags import check_flags
from penstock.preflight.launch.start_memory import (
    deployment_of,
    fit_to_memory,
    fitting_context,
    served_memory,
    start_context,
)
from penstock.preflight.predictions.aiter_kernels import lookup_mla
from penstock.preflight.predictions.architecture_support import architecture_support
from penstock.preflight.predictions.attention_backend import predict_backend, predict_graphs
from penstock.preflight.predictions.fp8_dialect import predict_dialect
from penstock.preflight.predictions.measured_engines import engines_measured_with
from penstock.preflight.predictions.weight_kernels import as_executed, predict_kernels
from penstock.preflight.preflight_result import Preflight, PreflightQuestion
from penstock.preflight.rules.findings import assess, first_read_release, last_read_release
from penstock.preflight.rules.knowledge import Knowledge


def check(question: PreflightQuestion, knowledge: Knowledge) -> Preflight:
    """Run a preflight: propose a launch, derive facts, evaluate every rule, and predict kernels and memory."""
    question = _as_launched(question)
    engine, version = question.engine, question.version
    recipe = recipe_of(question.subject.name, question.accelerator, engine, version, knowledge)
    plan = propose_launch(question.subject, question.accelerator, engine, version, question.asked, knowledge, recipe)
    launch = question.launch or plan.as_launch()
    facts = dict(derive_facts(_situation(question, launch, knowledge)))
    kernels = predict_kernels(question.subject.model, facts, knowledge.kernels)
    split, executed = question.asked.parallelism, as_executed(question.subject.model, kernels)
    placed = deployment_of(launch, question.engine, question.version, question.accelerator, split, executed)
    if question.launch is None:
        plan, cut, memory = fit_to_memory(plan, placed, question.asked.context_tokens)
        launch = plan.as_launch()
        facts = dict(derive_facts(_situation(question, launch, knowledge)))
    else:
        room = DeviceRoom(placed)
        cut = fitting_context(room) if question.profile.server == "vllm" else None
        context = start_context(launch, question.asked.context_tokens, placed)
        memory = served_memory(room, context)
        if memory.obstacle is not None and placed.speculative:
            # The reserves are known from logs without drafts, so that the draft layers alone refuse no launch.
            plain = served_memory(DeviceRoom(replace(placed, speculative=False)), context)
            memory = memory if plain.obstacle is not None and plain.certain else plain
    backend = predict_backend(facts, knowledge.attention)
    if backend.name is not None:
        facts["launch.attention"] = backend.name
    return Preflight(
        question=question,
        launch=launch,
        facts=facts,
        assessment=assess(knowledge.rules, facts, knowledge.standings),
        architecture=architecture_support(
            question.subject.model.architecture, question.engine, question.version, knowledge.architectures
        ),
        dialect=predict_dialect(facts),
        kernels=kernels,
        backend=backend,
        graphs=predict_graphs(facts, backend),
        aiter=lookup_mla(facts, knowledge.aiter),
        memory=memory,
        cut=cut,
        flags=(
            *check_flags(launch, question.version, knowledge.flags[question.profile.server]),
            *check_values(launch, question.profile.server, question.version, knowledge, memory.context_tokens),
        ),
        plan=plan,
        recipe=recipe,
        served=engines_measured_with(question.subject.model, question.accelerator.id, knowledge.served),
        newer_than_read=last_read_release(question.engine, question.version, knowledge.standings),
        older_than_read=first_read_release(question.version, knowledge.flags[question.profile.server]),
        rocm_read=newest_rocm(knowledge.images),
        unknown=tuple(knowledge.engines.get(question.engine, {}).get("unknown", ())),
    )


def _as_launched(question: PreflightQuestion) -> PreflightQuestion:
    """Return the preflight question with the weight formats that result from the quantisation that the launch requests.

    A proposed launch uses the quantisation method of the user's launch.
    """
    typed = question.launch and question.launch.flag("quantization", "quant")
    # vLLM converts the name of a method to lower case; a release that does not refuses the flag.
    method = question.asked.quantization or (typed and typed.lower()) or None
    stored = as_launched(question.subject, method)
    if stored is question.subject:
        return question
    return replace(question, subject=stored, asked=replace(question.asked, quantization=method))


def _situation(question: PreflightQuestion, launch: Launch, knowledge: Knowledge) -> Situation:
    return Situation(
        subject=question.subject,
        accelerator=question.accelerator,
        engine=question.engine,
        version=question.version,
        parallelism=question.asked.parallelism,
        launch=launch,
        host=host_of(launch, question.version, question.host or {}, knowledge),
        attention_backend=requested_backend(launch, question.profile.server, question.version, knowledge),
    )
