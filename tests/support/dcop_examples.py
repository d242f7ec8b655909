"""Small problem files in the dialects of FRODO and pyDCOP, and the error messages of their readers."""

import pytest

from dmcmc.formats import registry
from dmcmc.inference.runtime.errors import DmcmcError

# Three meetings of two agents in FRODO's PEAV form: equal slots across agents, different ones inside.
FRODO_MEETINGS = """\
<?xml version="1.0" encoding="UTF-8"?>
<instance xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:noNamespaceSchemaLocation="schema.xsd">
  <presentation name="meetings" format="XCSP 2.1_FRODO" maximize="false"><stats name="formulation">PEAV</stats></presentation>
  <agents nbAgents="2">
    <agent name="ann" />
    <agent name="bob" />
  </agents>
  <domains nbDomains="1">
    <domain name="slots" nbValues="3">1..3</domain>
  </domains>
  <variables nbVariables="4">
    <variable name="m0ann" domain="slots" agent="ann" />
    <variable name="m1ann" domain="slots" agent="ann" />
    <variable name="m0bob" domain="slots" agent="bob" />
    <variable name="m2bob" domain="slots" agent="bob" />
  </variables>
  <relations nbRelations="3">
    <relation name="NEQ" semantics="soft" arity="2" nbTuples="3" defaultCost="0">infinity: 1 1|2 2|3 3</relation>
    <relation name="EQ" semantics="soft" arity="2" nbTuples="3" defaultCost="infinity">0: 1 1|2 2|3 3</relation>
    <relation name="early" semantics="soft" arity="1" nbTuples="3" defaultCost="0">1: 1|2: 2|5: 3</relation>
  </relations>
  <constraints nbConstraints="6">
    <constraint name="m0" arity="2" scope="m0ann m0bob" reference="EQ" />
    <constraint name="ann" arity="2" scope="m0ann m1ann" reference="NEQ" agent="ann" />
    <constraint name="bob" arity="2" scope="m0bob m2bob" reference="NEQ" agent="bob" />
    <constraint name="t0" arity="1" scope="m0ann" reference="early" />
    <constraint name="t1" arity="1" scope="m1ann" reference="early" />
    <constraint name="t2" arity="1" scope="m2bob" reference="early" />
  </constraints>
</instance>
"""

# Relations of every semantics, a predicate and a function, no agents.
FRODO_MIXED = """\
<instance>
<presentation name="mixed" maximize="true" format="XCSP 2.1_FRODO"/>
<domains nbDomains="2"><domain name="a" nbValues="3">1..3</domain><domain name="b" nbValues="3">-1 3 7</domain></domains>
<variables nbVariables="3"><variable name="x" domain="a"/><variable name="y" domain="a"/><variable name="z" domain="b"/></variables>
<relations nbRelations="3">
<relation name="less" arity="2" nbTuples="3" semantics="supports">1 2|1 3|2 3</relation>
<relation name="not" arity="1" nbTuples="1" semantics="conflicts">1</relation>
<relation name="soft" arity="2" nbTuples="4" semantics="soft" defaultCost="-10">-4: 1 -1|2 3|3.5:3 7|-infinity:1 7</relation>
</relations>
<predicates nbPredicates="1"><predicate name="far">
<parameters>int A int B int D</parameters>
<expression><functional>and(ge(abs(sub(A,B)),D),not(eq(A,9)))</functional></expression>
</predicate></predicates>
<functions nbFunctions="1"><function name="cost" return="int">
<parameters>int A int B</parameters>
<expression><functional>if(lt(A,B),neg(A),mul(A,mod(B,2)))</functional></expression>
</function></functions>
<constraints nbConstraints="5">
<constraint name="c0" arity="2" scope="x y" reference="less"/>
<constraint name="c1" arity="1" scope="x" reference="not"/>
<constraint name="c2" arity="2" scope="x z" reference="soft"/>
<constraint name="c3" arity="2" scope="x z" reference="far"><parameters>x z 1</parameters></constraint>
<constraint name="c4" arity="2" scope="y z" reference="cost"><parameters>z y</parameters></constraint>
</constraints>
</instance>
"""

# What `pydcop generate graph_coloring` writes: as many agents as variables.
PYDCOP_COLOURING = """\
name: graph coloring
objective: min

domains:
  colors:
    type: colors
    values: [R, G, B]

variables:
  v0: {domain: colors}
  v1: {domain: colors}
  v2: {domain: colors}
  v3: {domain: colors, cost_function: 0.5 if v3 == 'R' else 0, noise_level: 0.02}

constraints:
  c0: {type: intention, function: 1000 if v0 == v1 else 0}
  c1: {type: intention, function: 1000 if v1 == v2 else 0}
  c2: {type: intention, function: 1000 if v0 == v2 else 0}
  c3:
    type: extensional
    variables: [v2, v3]
    values:
      0: R G | G R | B G
      7: R R | G
        G | B B
    default: 2
  c4:
    type: extensional
    variables: v0
    values: {3: R, .inf: G, 1: B}

agents: [a0, a1, a2, a3]
"""

# A body with statements, ranges, hints; agents with several variables.
PYDCOP_HINTS = """\
name: 'lights'
description: two rooms
objective: max
domains:
  level: {values: [0 .. 4], type: luminosity}
  flag: {values: [true, false]}
variables:
  l1: {domain: level, initial_value: 0, cost_function: -0.5 * l1}
  l2: {domain: level}
  m1: {domain: level}
  on: {domain: flag}
constraints:
  model:
    type: intention
    function: |
      total = 0.5 * l1 + 0.5 * l2
      if not on:
          total = 0
      return 0 if abs(total - m1) < 0.6 else -100
  rule:
    type: intention
    function: 10 - 3 * abs(m1 - 3) - sum([1 for x in (l1, l2) if x > 3])
agents:
  room1: {capacity: 100}
  room2: {capacity: 100}
distribution_hints:
  must_host:
    room1: [l1]
    room2: [l2, rule]
  host_with:
    m1: [rule]
routes: {default: 1}
"""

# What `pydcop generate meetings` writes into two files.
PYDCOP_MEETINGS = """\
name: MeetingSceduling
objective: max
domains:
  d_v_1_1: {type: time_slot, values: [0, 1, 2]}
  d_v_1_2: {type: time_slot, values: [0, 1, 2]}
  d_v_2_1: {type: time_slot, values: [0, 1, 2]}
variables:
  v_1_1: {domain: d_v_1_1}
  v_1_2: {domain: d_v_1_2}
  v_2_1: {domain: d_v_2_1}
constraints:
  ci_v_1_1_v_1_2:
    type: extensional
    values: {-60: 1 1 | 2 2, 0: 0 0, 3: 0 1 | 0 2, 4: 1 0 | 2 0, 8: 1 2 | 2 1}
    variables: [v_1_1, v_1_2]
  ce_v_1_1_v_2_1:
    type: extensional
    values: {-60: 0 1 | 0 2 | 1 0 | 1 2 | 2 0 | 2 1, 0: 0 0 | 1 1 | 2 2}
    variables: [v_1_1, v_2_1]
  cu_v_2_1:
    type: extensional
    values: {0: '0', 2: '2', 6: '1'}
    variables: [v_2_1]
agents:
  a_1: {}
  a_2: {}
"""
PYDCOP_MEETINGS_DIST = """\
cost: null
distribution:
  a_1: [v_1_1, v_1_2]
  a_2: [v_2_1]
inputs: {algo: NA, dcop: meetings.yaml, dist_algo: peav, graph: constraints_graph}
"""

SEEDS = {
    "xcsp": [FRODO_MEETINGS.encode(), FRODO_MIXED.encode()],
    "pydcop": [
        PYDCOP_COLOURING.encode(),
        PYDCOP_HINTS.encode(),
        (PYDCOP_MEETINGS + PYDCOP_MEETINGS_DIST).encode(),
    ],
}


def refusal(text, format):
    """Return the error message for a text, without the name of the text."""
    with pytest.raises(DmcmcError) as caught:
        registry.parse(text.encode(), format)
    return str(caught.value).removeprefix("text: ")
